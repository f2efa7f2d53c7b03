"""Forward and backward of the medium and the large preset, with the vocabulary of GPT-2."""

from rich.table import Table

from latchwork import MinMaxRNCLMConfig
from measure import Row, threads_set_to
from model_contenders import OURS, PEER, ours, peer
from model_products import bounds
from model_timing import Settings
from model_training import compare, random_batch
from model_training import table as training_table

VOCABULARY = 50257
LARGE, MEDIUM = "large, B = 1, T = 1024", "medium, B = 8, T = 512"
CASES = {LARGE: (MinMaxRNCLMConfig.large(), 1, 1024), MEDIUM: (MinMaxRNCLMConfig.medium(), 8, 512)}


def run(settings: Settings) -> list[Row]:
    rows = []
    for label, (config, B, T) in CASES.items():
        batch = random_batch(VOCABULARY, B, T)
        own = ours(VOCABULARY, config)
        makers = {OURS: lambda own=own: own, PEER: lambda config=config: peer(VOCABULARY, config)}
        measure = compare(label, makers, bounds(own.model, batch[0]), batch, optimise=False)
        for threads in settings.threads:
            with threads_set_to(threads):
                rows += measure(threads, settings.seconds)
        del own, makers, measure  # gigabytes
    return rows


def table(rows: list[Row]) -> Table:
    return training_table(rows, f"Forward, cross-entropy and backward, V = {VOCABULARY:,}.")
