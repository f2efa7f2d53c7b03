"""Temporal logic against RTAMT and stlcgpp, side by side in one process, one thread: python benchmarks/temporal.py

Contenders take turns; each time is a median of processor time, which a busy machine changes least. Goals are printed
whether they were reached or not. Writes benchmarks/results/temporal.json, from which benchmarks/figures.py writes the
table of docs/temporal.md. About three minutes; one part alone (--only) is printed and not written.
"""

import argparse
import ctypes
import logging
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from latchwork.files import write_json
from latchwork.temporal import parse
from machine import describe
from measure import Row, Timing, interleave, progress, threads_set_to
from model_peak import extra_memory
from temporal_figures import table_of

RESULTS = Path(__file__).parent / "results" / "temporal.json"
STEPS = 100_000
BATCH = 256
PEERS = ("rtamt", "stlcgpp")
OFFLINE = {
    "since": "x >= 0 since y >= 1",
    "until": "x >= 0 until y >= 1",
    "always[0:100]": "always[0:100] x >= -1",
    "eventually[5:500]": "eventually[5:500] y >= 1",
    "ten operators": "always[0:20] ((x >= 0 implies eventually[0:10] y >= 0) and not (once[0:5] x >= 2)) or "
    "historically[0:10] (prev x >= -2 since y >= -1)",
}
ONLINE = {
    "since": "x >= 0 since y >= 1",
    "historically[0:100]": "historically[0:100] x >= 0",
    "past, five operators": "(historically[0:10] x >= -1) and (x >= 0 since y >= 1) or once (prev y >= 2)",
    "future, delay 15": "always[0:10] (x >= 1 implies eventually[0:5] y >= 1)",
}
FIVE = "historically[0:50] x >= -3 and (x >= 0 since y >= 1) or once[3:30] y >= 2"
NAMES = ("x", "y")


def traces(steps: int, batch: int | None = None, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (steps,) if batch is None else (batch, steps)
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name in NAMES}


def specification(text: str):
    import rtamt

    made = rtamt.StlDiscreteTimeSpecification()
    for name in NAMES:
        made.declare_var(name, "float")
    made.spec = text
    made.parse()
    return made


def turns(calls: Mapping[str, Callable[[], object]], seconds: float = 1.5) -> dict[str, Timing]:
    return interleave(calls, seconds, time.process_time)


def offline(rows: list[Row]) -> None:
    found = traces(STEPS)
    data = {"time": list(range(STEPS)), **{name: value.tolist() for name, value in found.items()}}
    for name, text in OFFLINE.items():
        theirs, ours = specification(text), parse(text)
        wanted = torch.tensor([value for _, value in theirs.evaluate(data)], dtype=torch.float64)
        assert torch.equal(ours(found), wanted), text
        times = turns({"rtamt": lambda s=theirs: s.evaluate(data), "latchwork": lambda f=ours: f(found)})
        rows.append(faster(f"{STEPS:,} steps, {name}", times, 50))


def online(rows: list[Row]) -> None:
    steps = 500
    numbers = [{name: random.Random(k).gauss(0, 1) for name in NAMES} for k in range(steps)]
    columns = traces(steps, BATCH)
    tensors = [{name: value[:, k].clone() for name, value in columns.items()} for k in range(steps)]
    for name, text in ONLINE.items():

        def theirs(text=text):
            monitor = specification(text)
            monitor.pastify()
            pairs = [list(values.items()) for values in numbers]
            return lambda: [monitor.update(k, values) for k, values in enumerate(pairs)]

        one, many = parse(text).online(), parse(text).online(batch=BATCH)
        times = turns(
            {
                "rtamt": theirs(),
                "one": lambda m=one: [m.step(values) for values in numbers],
                "many": lambda m=many: [m.step(values) for values in tensors],
            }
        )
        rtamt, alone, shared = (
            Timing(times[key].seconds / steps / share, times[key].calls)
            for key, share in (("rtamt", 1), ("one", 1), ("many", BATCH))
        )
        rows.append(faster(f"online, a step, {name}", {"latchwork": alone, "rtamt": rtamt}, 5))
        what = f"online, a step of one trace in {BATCH}, {name}"
        rows.append(faster(what, {"latchwork": shared, "rtamt": rtamt}, 500))


def gradients(rows: list[Row]) -> None:
    from stlcgpp.formula import GreaterThan, Predicate, Until

    steps, batch = 200, 64
    found = traces(steps, batch, torch.float32)
    left, right = (GreaterThan(Predicate(name, lambda s, k=k: s[..., k]), 0.0) for k, name in enumerate(NAMES))
    theirs = Until(left, right)
    ours = parse("x > 0 until (x > 0 and y > 0)")  # stlcgpp's Until asks for x at the step of y too
    short = {name: value[0, :20] for name, value in found.items()}
    assert torch.equal(ours(short), theirs(torch.stack([short[name] for name in NAMES], -1)))

    def their_step():
        signal = torch.stack([found[name] for name in NAMES], -1).requires_grad_()
        sum(theirs(each)[0] for each in signal).backward()  # a trace at a time: torch.vmap takes three times as long

    def our_step():
        leaves = {name: value.clone().requires_grad_() for name, value in found.items()}
        ours(leaves)[:, 0].sum().backward()

    times = turns({"stlcgpp": their_step, "latchwork": our_step}, 2.0)
    rows.append(faster(f"until, forward and backward, {batch} x {steps}", times, 20))
    gigabytes = peak_of(10_000, batch) / 1e9
    rows.append(below(f"until, forward and backward, {batch} x 10,000, peak memory", gigabytes, "GB", 1))


def growth(rows: list[Row]) -> None:
    formula = parse("x >= 0 since[5:40] y >= 1 and eventually[0:100] x >= 1 or always (x until y)")
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    times = turns({str(size): partial(formula, traces(size)) for size in sizes}, 2.0)
    exponent = slope([(size, times[str(size)].seconds) for size in sizes])
    rows.append(below("growth of the time, T = 1e3 to 1e6, exponent of T", exponent, "", 1.03))
    exponent = slope([(size, peak_of(size, 16)) for size in sizes])
    rows.append(below("growth of the memory, 16 traces, T = 1e3 to 1e6, exponent of T", exponent, "", 1.03))
    found = traces(1_000_000)
    for text in ("eventually[0:{}] x", "x since[0:{}] y"):
        times = turns({str(b): partial(parse(text.format(b)), found) for b in (10, 10_000)})
        ratio = times["10000"].seconds / times["10"].seconds
        rows.append(below(f"{text.format('b')}, time of b = 10,000 over that of b = 10", ratio, "", 1.5))
    five = turns({"latchwork": partial(parse(FIVE), found)}, 2.0)["latchwork"].seconds
    rows.append(below("1,000,000 steps, five operators", five * 1e3, "ms", 50))


def slope(points: list[tuple[int, float]]) -> float:
    """The exponent of the line through the logarithms, by least squares."""
    xs, ys = zip(*((math.log(a), math.log(b)) for a, b in points), strict=True)
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum((x - x0) ** 2 for x in xs)


def peak(steps: int, batch: int) -> None:
    """Print the bytes that signals, forward and backward take at most."""
    formula = parse("x > 0 until y > 0")

    def run(size: int) -> None:
        leaves = {name: value.requires_grad_() for name, value in traces(size, batch, torch.float32).items()}
        formula(leaves)[:, 0].sum().backward()

    run(8)  # loads and allocates what is needed once
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free counts again when it is used again
    print(extra_memory(lambda: run(steps)))


def peak_of(steps: int, batch: int) -> float:
    """What `peak` prints in a process of its own."""
    command = [sys.executable, __file__, "--peak", str(steps), str(batch)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def faster(what: str, times: Mapping[str, Timing], goal: float) -> Row:
    """How many times as fast as the rival, which must be `goal` at least."""
    (rival,) = times.keys() - {"latchwork"}
    ratio = times[rival].seconds / times["latchwork"].seconds
    medians = {name: times[name].seconds for name in ("latchwork", rival)}
    calls = {name: times[name].calls for name in medians}
    return Row(
        what=what, seconds=medians, calls=calls, value=ratio, unit="x", bound=goal, at_least=True, reached=ratio >= goal
    )


def below(what: str, value: float, unit: str, goal: float) -> Row:
    """A figure of our own, which must be `goal` at most."""
    return Row(what=what, value=value, unit=unit, bound=goal, at_least=False, reached=value <= goal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", nargs=2, type=int, metavar=("STEPS", "BATCH"), help="used by the benchmark itself")
    parser.add_argument("--only", choices=("offline", "online", "gradients", "growth"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        peak(*arguments.peak)
        return
    logging.disable(logging.WARNING)
    record: dict[str, Any] = {"machine": describe(1, PEERS), "rows": []}
    with threads_set_to(1):
        for part in (offline, online, gradients, growth):
            if arguments.only in (None, part.__name__):
                progress(part.__name__)
                part(record["rows"])
    head, lines = table_of(record)
    table = Table(*head, title="Temporal logic")
    for each in lines:
        table.add_row(*each)
    Console(width=160).print(table, record["machine"])
    if arguments.only is None:
        write_json(RESULTS, record)


if __name__ == "__main__":
    main()
