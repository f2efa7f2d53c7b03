"""A training step of the small preset beside the paper's own, other models of its size, and its products alone."""

from functools import partial

from rich.table import Table

from latchwork import MinMaxRNCLMConfig
from measure import Row, threads_set_to
from model_contenders import COMPILED, OURS, PEER, compiled, others, ours, peer
from model_products import bounds
from model_timing import Settings
from model_training import Makers, compare, random_batch
from model_training import table as training_table

VOCABULARIES = (20, 2560)
B, T = 64, 512


def run(settings: Settings) -> list[Row]:
    rows = []
    for vocab_size in VOCABULARIES[:1] if settings.quick else VOCABULARIES:
        config = MinMaxRNCLMConfig.small()
        batch = random_batch(vocab_size, B, T)
        own = ours(vocab_size, config)
        makers: Makers = {
            OURS: lambda own=own: own,
            COMPILED: partial(compiled, vocab_size, config),
            PEER: partial(peer, vocab_size, config),
        }
        limits = {}
        if not settings.quick:
            makers |= others(vocab_size, own.model.parameter_count())
            limits = bounds(own.model, batch[0])
        measure = compare(f"V = {vocab_size}", makers, limits, batch, optimise=True)
        for threads in settings.threads:
            with threads_set_to(threads):
                rows += measure(threads, settings.seconds)
    return rows


def table(rows: list[Row]) -> Table:
    return training_table(rows, f"Training step of the small preset and others of its size, B = {B}, T = {T}.")
