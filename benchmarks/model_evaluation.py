"""Accuracy on one sequence of 2^20 tokens, in pieces, with the state carried on: time, and memory that stays small.

The small preset with the same weights in both. Memory is the peak beyond what is resident before the pass, when
model, tokens and targets are there, in a process of its own.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from measure import Row, progress, threads_set_to
from model_contenders import OURS, PEER, twins
from model_peak import extra_memory, in_fresh_process
from model_timing import Settings, take_turns
from model_training import random_batch

VOCABULARY, LENGTH = 20, 2**20
SHORT = 2**14  # to warm up
CHUNKS = {OURS: (2048, 8192, 32768), PEER: (512, 2048, 8192, 32768)}


@torch.no_grad()
def our_accuracy(model: MinMaxRNC_LM, tokens: Tensor, targets: Tensor, chunk: int) -> float:
    answers, _ = model.predict(tokens, chunk_size=chunk)
    return int((answers == targets).sum()) / targets.numel()


@torch.no_grad()
def their_accuracy(model: Any, tokens: Tensor, targets: Tensor, chunk: int) -> float:
    correct, state = 0, None
    for piece, answer in zip(tokens.split(chunk, 1), targets.split(chunk, 1), strict=True):
        logits, state = model(piece, unroll_steps=piece.shape[1], state=state, return_state=True)
        correct += int((logits.argmax(-1) == answer).sum())
    return correct / targets.numel()


def passes(length: int) -> dict[str, Callable[[int], float]]:
    """Contender -> accuracy on `length` tokens, given the size of the pieces."""
    torch.manual_seed(0)
    own, theirs = twins(VOCABULARY, MinMaxRNCLMConfig.small())
    tokens, targets = random_batch(VOCABULARY, 1, length)
    return {OURS: partial(our_accuracy, own, tokens, targets), PEER: partial(their_accuracy, theirs, tokens, targets)}


def run(settings: Settings) -> list[Row]:
    whole, short = passes(LENGTH), passes(SHORT)
    rows = {f"{name} {chunk}": Row(contender=name, chunk=chunk) for name in CHUNKS for chunk in CHUNKS[name]}
    calls: dict[str, Callable[[], None]] = {}

    def call(key: str) -> None:
        rows[key]["accuracy"] = whole[rows[key]["contender"]](rows[key]["chunk"])

    with threads_set_to(1):
        for key, row in rows.items():
            short[row["contender"]](row["chunk"])
            calls[key] = partial(call, key)
        progress("evaluation: time")
        for key, timing in take_turns(calls, settings.seconds).items():
            rows[key].update(seconds=timing.seconds, calls=timing.calls)
    best = min(row["seconds"] for row in rows.values() if row["contender"] == PEER)
    for key, row in rows.items():
        progress(f"evaluation: memory of {key}")
        row["faster"] = best / row["seconds"]
        row.update(in_fresh_process(__file__, row["contender"], row["chunk"]))
    return list(rows.values())


def peak(name: str, chunk: int) -> int:
    torch.set_num_threads(1)
    call = passes(LENGTH)[name]
    return extra_memory(lambda: call(chunk))


def table(rows: list[Row]) -> Table:
    title = f"Accuracy on {LENGTH:,} tokens, 1 thread. x: times as fast as minmaxrnc with its best pieces."
    result = Table(title=title)
    result.add_column("contender")
    for heading in ("tokens a piece", "s", "x", "extra MB", "accuracy"):
        result.add_column(heading, justify="right")
    result.add_column("notes")
    for row in rows:
        size = f"{row['extra MB']:.1f}" if "extra MB" in row else "-"
        cells = [f"{row['seconds']:.2f} ({row['calls']})", f"{row['faster']:.2f}", size, f"{row['accuracy']:.5f}"]
        result.add_row(row["contender"], str(row["chunk"]), *cells, row.get("note", ""))
    return result


if __name__ == "__main__":
    print(peak(sys.argv[1], int(sys.argv[2])))
