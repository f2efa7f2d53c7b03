"""Decoding with the large preset, one sequence: tokens a second, and the bound that reading the weights sets.

All contenders have the same weights. The bound is what is read for one token, which is every weight once, at the
speed at which this machine reads 400 MB: the better of a sum and of a product of a matrix and a vector.
"""

from collections.abc import Callable
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from latchwork import MinMaxRNCLMConfig
from measure import Row, progress, threads_set_to
from model_contenders import OURS, PEER, twins
from model_timing import Settings, take_turns
from model_training import rate

VOCABULARY = 50257
READ = 100_000_000  # floats
TOKENS = 8  # a call
INT8 = f"{OURS}, int8"


class Decoder:
    """Each call takes the best token TOKENS times and goes on from there the next time."""

    def __init__(self, step: Callable[[Tensor, Any], tuple[Tensor, Any]], weights: int) -> None:
        self.step, self.weights = step, weights
        self.token, self.state = torch.zeros(1, 1, dtype=torch.long), None

    @torch.no_grad()
    def __call__(self) -> None:
        for _ in range(TOKENS):
            logits, self.state = self.step(self.token, self.state)
            self.token = logits[:, -1].argmax(-1, keepdim=True)


def bytes_of(model: nn.Module) -> int:
    """Of all parameters and buffers, each once."""
    tensors = {each.data_ptr(): each.nbytes for each in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())


def decoders() -> tuple[dict[str, Decoder], str]:
    """By name; and why there is none in int8, or an empty string."""
    torch.manual_seed(0)
    own, theirs = twins(VOCABULARY, MinMaxRNCLMConfig.large())
    found = {
        OURS: Decoder(own, bytes_of(own)),
        PEER: Decoder(
            lambda token, state: theirs(token, unroll_steps=1, state=state, return_state=True), bytes_of(theirs)
        ),
    }
    try:
        from latchwork.models.int8 import quantize_int8
    except ImportError as reason:
        return found, str(reason)
    small = quantize_int8(own)
    found[INT8] = Decoder(small, bytes_of(small))
    return found, ""


def run(settings: Settings) -> list[Row]:
    progress("decode: the large preset is set up")
    found, lacking = decoders()
    rows = []
    matrix = torch.ones(READ // 10_000, 10_000)
    vector = torch.ones(10_000)
    reads = {"read: sum": matrix.sum, "read: matrix times vector": lambda: torch.mv(matrix, vector)}
    for threads in settings.threads:
        progress(f"decode: {threads} thread(s)")
        with threads_set_to(threads):
            timings = take_turns({**found, **reads}, settings.seconds)
        rows += judged(timings, found, matrix.nbytes, threads)
        if lacking:
            rows.append(Row(threads=threads, contender=INT8, note=f"not measured: {lacking}"))
    return rows


def judged(timings: dict[str, Any], found: dict[str, Decoder], size: int, threads: int) -> list[Row]:
    """Rows with tokens a second beside the bound, then what the memory gave."""
    speeds = {name: size / timing.seconds for name, timing in timings.items() if name not in found}
    rows = []
    for name, decoder in found.items():
        seconds = timings[name].seconds / TOKENS
        bound = max(speeds.values()) / decoder.weights
        rows.append(Row(threads=threads, contender=name, seconds=seconds, calls=timings[name].calls))
        rows[-1].update({"tokens/s": 1 / seconds, "bound": bound, "percent": 100 / seconds / bound})
        rows[-1]["weights MB"] = decoder.weights / 1e6
    rate(rows)
    for name, speed in speeds.items():
        rows.append(Row(threads=threads, contender=name, seconds=timings[name].seconds, calls=timings[name].calls))
        rows[-1]["GB/s"] = speed / 1e9
    return rows


def table(rows: list[Row]) -> Table:
    title = f"Decoding, large preset, V = {VOCABULARY:,}, batch 1. x: times as fast as minmaxrnc."
    columns = {"tokens/s": 2, "faster": 2, "weights MB": 0, "bound": 2, "percent": 0, "GB/s": 1}
    heads = {"faster": "x", "bound": "bound, tokens/s", "percent": "% of bound"}
    result = Table(title=title)
    for heading in ("threads", "contender"):
        result.add_column(heading)
    for column in columns:
        result.add_column(heads.get(column, column), justify="right")
    result.add_column("notes")
    for row in rows:
        cells = [f"{row[column]:.{digits}f}" if column in row else "" for column, digits in columns.items()]
        result.add_row(str(row["threads"]), row["contender"], *cells, row.get("note", ""))
    return result
