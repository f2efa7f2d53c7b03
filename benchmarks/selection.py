"""Moves of whole levels, on 1 thread: reference, torch and C++ side by side, and a copy of as many bytes.

python benchmarks/selection.py [--seconds 0.5]
prints a table and writes benchmarks/results/selection.json. All contenders take turns, as autograd calls them. Bytes:
forward reads choice and writes the states; backward reads choice, states and gradient and writes the gradient of the
weights. The choice (softmax and argmax) reads logits and writes weights and choice, and backward reads weights and
gradient and writes the gradient of the logits. The limit is one copy that moves as many, in memory that is already
there. Times are medians of the processor time of the one thread: a busy machine stretches them less than the clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from latchwork.files import write_json
from latchwork.ops.choice import choose_rows
from latchwork.ops.moves import selection_scan, transformation_scan
from machine import describe
from measure import Row, no_garbage_collection, progress, threads_set_to

RESULTS = Path(__file__).parent / "results" / "selection.json"
SHAPES = ((25, 40, 16, 5), (8, 512, 16, 5), (8, 512, 32, 3), (8, 512, 16, 8), (1, 2048, 16, 5))  # B, T, U, N
FEWEST = 5  # rounds
Run = Callable[[], tuple[Tensor, list[Tensor]]]  # what comes out, and what gets a gradient


def copy_of(size: int) -> Callable[[], object]:
    """A copy that moves `size` bytes: half of them read, half of them written."""
    source = torch.ones(max(1, size // 8))
    to = torch.ones_like(source)
    return lambda: to.copy_(source)


def problems(B: int, T: int, U: int, N: int) -> dict[str, tuple[dict[str, Run], int, int]]:
    """For each op its contenders, and the bytes of forward, and of backward."""
    state = B * T * U * N
    choice, own_choice = torch.randint(N, (B, T, U, N)), torch.randint(N + 1, (B, T, U, N))
    weights = torch.rand(B, T, U, N, N, requires_grad=True)
    own_weights = torch.rand(B, T, U, N, N + 1, requires_grad=True)
    x0, s = torch.rand(U, N, requires_grad=True), torch.rand(U, N, requires_grad=True)
    own = torch.rand(B, T, U, N, requires_grad=True)
    runs: dict[str, dict[str, Run]] = {name: {} for name in ("selection", "selection, s", "transformation", "choice")}
    for each in ("reference", "torch", "cpu"):
        runs["selection"][each] = lambda b=each: (selection_scan(weights, choice, x0, backend=b), [weights, x0])
        runs["selection, s"][each] = lambda b=each: (
            selection_scan(own_weights, own_choice, x0, s=s, backend=b),
            [own_weights, x0, s],
        )
        runs["transformation"][each] = lambda b=each: (
            transformation_scan(weights, choice, x0, backend=b),
            [weights, x0],
        )
        if each != "reference":
            runs["choice"][each] = lambda b=each: (choose_rows(weights, own, backend=b)[0], [weights, own])
    forward = state * (8 + 4)
    return {
        "selection": (runs["selection"], forward, state * (8 + 8 + 4 * N)),
        "selection, s": (runs["selection, s"], forward, state * (8 + 8 + 4 * (N + 1))),
        "transformation": (runs["transformation"], forward, state * (8 + 8 + 4 * N)),
        "choice": (runs["choice"], state * (8 * (N + 1) + 8), state * 12 * (N + 1)),
    }


def both_ways(run: Run) -> Callable[[], object]:
    """The same with its gradient."""
    grad = torch.randn_like(run()[0])

    def call() -> object:
        out, leaves = run()
        return torch.autograd.grad(out, leaves, grad)

    return call


def in_turns(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median seconds of the thread for each call; every one has run once before."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    with no_garbage_collection():
        for _ in range(FEWEST):
            for name, call in calls.items():
                end = time.thread_time() + seconds / FEWEST
                while not times[name] or time.thread_time() < end:
                    start = time.thread_time()
                    result = call()
                    times[name].append(time.thread_time() - start)
                    del result
    return {name: statistics.median(each) for name, each in times.items()}


def measure(shape: tuple[int, int, int, int], seconds: float) -> list[Row]:
    rows = []
    for op, (runs, forward, backward) in problems(*shape).items():
        progress(f"{op}: {shape}")
        row = Row(op=op, shape=shape)
        for ways, size in (("forward", forward), ("forward+backward", forward + backward)):
            calls = dict(runs) if ways == "forward" else {name: both_ways(run) for name, run in runs.items()}
            row[ways] = in_turns({**calls, "limit": copy_of(size)}, seconds)
            row[f"{ways} bytes"] = size
        rows.append(row)
    return rows


def table(rows: list[Row]) -> Table:
    result = Table(title="Moves of levels, 1 thread, ms. x: torch against cpu. Limit: a copy of as many bytes.")
    names = ("reference", "torch", "cpu", "limit")
    for heading in ("op", "B, T, U, N", *names, "x", *(f"both: {name}" for name in names), "x"):
        result.add_column(heading, justify="left" if heading in ("op", "B, T, U, N") else "right")
    for row in rows:
        cells = [row["op"], ", ".join(map(str, row["shape"]))]
        for ways in ("forward", "forward+backward"):
            times = row[ways]
            cells += [f"{times[name] * 1e3:.2f}" if name in times else "-" for name in names]
            cells.append(f"{times['torch'] / times['cpu']:.0f}")
        result.add_row(*cells)
    return result


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each contender in each comparison")
    options = parser.parse_args()
    machine = describe(1)
    with threads_set_to(1):
        rows = [row for shape in SHAPES for row in measure(shape, options.seconds)]
    Console(width=160).print(table(rows))
    write_json(RESULTS, {"machine": machine, "moves": rows})


if __name__ == "__main__":
    main()
