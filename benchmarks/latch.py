"""Latch beside nn.LSTM and nn.GRU, two layers, equal parameters, side by side: python benchmarks/latch.py

Forward and backward at three shapes, one step of a stream (by Latch.stream, and by a plain call with the state given
back), and the memory of a long sequence. Contenders take turns, call by call; each figure is a median. With one thread
it is processor time, which a busy machine changes least, with two the time on the clock. Goals are printed whether they
were reached or not. Writes benchmarks/results/latch.json.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from latchwork import Latch
from machine import describe
from measure import Row, no_garbage_collection, progress, threads_set_to
from model_peak import extra_memory, in_fresh_process

FEATURES, LAYERS, STEPS = 16, 2, 100
SHAPES = ((64, 512), (4, 4096), (1, 16_384))
KINDS = ("latch", "lstm", "gru")
GOALS = {  # how many times as fast as this contender
    (64, 512): {"lstm": 1.0, "gru": 3.0},
    (4, 4096): {"lstm": 2.0},
    (1, 16_384): {"lstm": 8.0},
}
OUT = Path(__file__).parent / "results" / "latch.json"
CLASSES = {"latch": Latch, "lstm": nn.LSTM, "gru": nn.GRU}


def count(layer: nn.Module) -> int:
    return sum(each.numel() for each in layer.parameters())


def make(kind: str, hidden: int) -> nn.Module:
    """The widest layer of this kind with no more parameters than the LSTM of width `hidden`."""
    torch.manual_seed(0)
    with torch.device("meta"):
        most, width = count(nn.LSTM(FEATURES, hidden, LAYERS)), 8
        while count(CLASSES[kind](FEATURES, width + 1, LAYERS)) <= most:
            width += 1
    return CLASSES[kind](FEATURES, width, LAYERS, batch_first=True)


def learn(layer: nn.Module, u: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        layer.zero_grad()
        layer(u)[0].square().mean().backward()

    return call


def stream(layer: nn.Module) -> Callable[[], None]:
    """STEPS single steps of one row, by `layer.stream` where there is one."""
    if not isinstance(layer, Latch):
        return call_steps(layer)
    u = torch.randn(STEPS, 1, FEATURES)

    def call() -> None:
        step = layer.stream()
        for each in u:
            step(each)

    return call


def call_steps(layer: nn.Module) -> Callable[[], None]:
    """STEPS single steps of one row, each a call of the layer."""
    u = torch.randn(STEPS, 1, 1, FEATURES)

    @torch.no_grad()
    def call() -> None:
        state = None
        for each in u:
            _, state = layer(each, state)

    return call


def turns(calls: Mapping[str, Callable[[], None]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    with no_garbage_collection():
        for number in range(repeats + 1):
            for name, call in calls.items():
                start = clock()
                call()
                if number:  # the first call warms up
                    times[name].append(clock() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def run(hidden: int, threads: int, repeats: int) -> list[dict[str, object]]:
    layers = {kind: make(kind, hidden) for kind in KINDS}
    counts = {kind: count(layer) for kind, layer in layers.items()}
    rows: list[dict[str, object]] = []

    def add(what: str, shape: tuple[int, int], **found: object) -> None:
        load = round(os.getloadavg()[0], 1)
        settings = {"hidden": hidden, "threads": threads, "what": what, "shape": shape, "parameters": counts}
        rows.append({**settings, "load": load, **found})

    clock = time.process_time if threads == 1 else time.perf_counter
    with threads_set_to(threads):
        for shape in SHAPES:
            progress(f"width {hidden}, {shape}, threads {threads}")
            u = torch.randn(*shape, FEATURES)
            calls = {kind: learn(layer, u) for kind, layer in layers.items()}
            add("forward, backward", shape, seconds=turns(calls, repeats, clock))
        calls = {kind: stream(layer.eval()) for kind, layer in layers.items()}
        calls["called"] = call_steps(layers["latch"])
        found = {kind: seconds / STEPS for kind, seconds in turns(calls, 5 * repeats, clock).items()}
        called = found.pop("called")
        add("step of a stream", (1, 1), seconds=found)
        add("step by a call", (1, 1), seconds={**found, "latch": called})
    if threads == 1:
        add("memory", (1, 16_384), memory=memory(hidden))
    return rows


def memory(hidden: int) -> dict[str, Row]:
    """What forward and backward of 16,384 steps add: of three processes the one in the middle, for they differ."""
    found = {
        kind: [in_fresh_process(__file__, "--peak", kind, "--hidden", hidden) for _ in range(3)]
        for kind in ("latch", "lstm")
    }
    return {kind: sorted(rows, key=lambda row: row.get("extra MB", 0.0))[1] for kind, rows in found.items()}


def product_speed(size: int = 1024) -> float:
    """Billions of operations a second of torch's product of large matrices on one thread, for comparison."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    with threads_set_to(1):
        seconds = turns({"product": lambda: torch.mm(a, b)}, 20, time.process_time)["product"]  # type: ignore[dict-item]
    return 2 * size**3 / seconds / 1e9


def peak(kind: str, hidden: int) -> int:
    """Bytes that a forward and a backward of 16,384 steps add."""
    torch.set_num_threads(1)
    layer = make(kind, hidden)
    learn(layer, torch.randn(1, 512, FEATURES))()
    u = torch.randn(1, 16_384, FEATURES)
    return extra_memory(learn(layer, u))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 128], help="of the LSTM")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peak", choices=KINDS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak, options.hidden[0]))
        return
    rows = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    matrices = round(product_speed(), 1)
    write(rows, matrices, 1)
    for hidden, threads in product(options.hidden, options.threads):
        new = run(hidden, threads, options.repeats)
        rows = [row for row in rows if (row["hidden"], row["threads"]) != (hidden, threads)] + new
        rows.sort(key=lambda row: (row["hidden"], row["threads"]))
        write(rows, matrices, threads)
        for row in new:
            print(describe_row(row))


def write(rows: list[dict[str, object]], matrices: float, threads: int) -> None:
    """The record. matrices: see `product_speed`."""
    whole = {"machine": describe(threads), "product of large matrices": matrices, "rows": rows}
    OUT.write_text(json.dumps(whole, indent=1) + "\n")


def describe_row(row: dict[str, Any]) -> str:
    what = f"width {row['hidden']}, {row['what']} {tuple(row['shape'])}, threads {row['threads']}"
    if row["what"] == "memory":
        return f"{what}: {row['memory']}; goal: at most that of the LSTM"
    seconds, goals = row["seconds"], GOALS.get(tuple(row["shape"]), {"lstm": 1.0})
    ratios = {kind: seconds[kind] / seconds["latch"] for kind in ("lstm", "gru")}
    reached = all(ratios[kind] >= goal for kind, goal in goals.items())
    text = ", ".join(f"{ratios[kind]:.2f} x {kind}" for kind in ratios)
    goal = ", ".join(f"{value:g} x {kind}" for kind, value in goals.items())
    return f"{what}: {text}; goal {goal}: {'reached' if reached else 'NOT reached'}"


if __name__ == "__main__":
    main()
