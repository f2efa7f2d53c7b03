"""Temporal logic against RTAMT and stlcgpp, side by side in one process, one thread: python benchmarks/temporal.py

Each line is a median; contenders take turns. Goals are printed whether they were reached or not. About two minutes.
"""

import argparse
import logging
import math
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from latchwork.temporal import parse
from machine import describe
from measure import Timing, interleave, threads_set_to
from memory import resident

STEPS = 100_000
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


def offline(rows: list[list[str]]) -> None:
    found = traces(STEPS)
    data = {"time": list(range(STEPS)), **{name: value.tolist() for name, value in found.items()}}
    for name, text in OFFLINE.items():
        theirs, ours = specification(text), parse(text)
        wanted = torch.tensor([value for _, value in theirs.evaluate(data)], dtype=torch.float64)
        assert torch.equal(ours(found), wanted), text
        times = interleave({"rtamt": lambda s=theirs: s.evaluate(data), "ours": lambda f=ours: f(found)}, 1.5)
        rows.append(line(f"offline, 1e5 steps, {name}", "rtamt", times, 50))


def online(rows: list[list[str]]) -> None:
    steps = 500
    numbers = [{name: random.Random(k).gauss(0, 1) for name in NAMES} for k in range(steps)]
    tensors = [{name: torch.randn(256, dtype=torch.float64) for name in NAMES} for _ in range(steps)]
    for name, text in ONLINE.items():

        def theirs(text=text):
            monitor = specification(text)
            monitor.pastify()
            pairs = [list(values.items()) for values in numbers]
            return lambda: [monitor.update(k, values) for k, values in enumerate(pairs)]

        one, many = parse(text).online(), parse(text).online(batch=256)
        calls = {
            "rtamt": theirs(),
            "ours": lambda m=one: [m.step(values) for values in numbers],
            "ours 256": lambda m=many: [m.step(values) for values in tensors],
        }
        times = {key: Timing(each.seconds / steps, each.calls) for key, each in interleave(calls, 1.5).items()}
        rows.append(line(f"online, a step, {name}", "rtamt", times, 5))
        each = {"rtamt": times["rtamt"], "ours": Timing(times["ours 256"].seconds / 256, times["ours 256"].calls)}
        rows.append(line(f"online, a step of one trace in 256, {name}", "rtamt", each, 500))


def gradients(rows: list[list[str]]) -> None:
    from stlcgpp.formula import GreaterThan, Predicate, Until

    steps, batch = 200, 64
    found = traces(steps, batch, torch.float32)
    left, right = (GreaterThan(Predicate(name, lambda s, k=k: s[..., k]), 0.0) for k, name in enumerate(NAMES))
    theirs = Until(left, right)
    ours = parse("x > 0 until y > 0")

    def their_step():
        signal = torch.stack([found[name] for name in NAMES], -1).requires_grad_()
        sum(theirs(each)[0] for each in signal).backward()  # a trace at a time: torch.vmap takes three times as long

    def our_step():
        leaves = {name: value.clone().requires_grad_() for name, value in found.items()}
        ours(leaves)[:, 0].sum().backward()

    rows.append(line("until, forward and backward, 64 x 200", "stlcgpp", interleave(
        {"stlcgpp": their_step, "ours": our_step}, 2.0), 20))  # fmt: skip
    done = subprocess.run(
        [sys.executable, __file__, "--peak", "10000", "64"], capture_output=True, text=True, check=True
    )
    gigabytes = float(done.stdout) / 1e9
    rows.append(
        [
            "until, forward and backward, 64 x 10,000, peak",
            f"{gigabytes:.3f} GB",
            "",
            "",
            verdict(gigabytes < 1, "< 1 GB"),
        ]
    )


def growth(rows: list[list[str]]) -> None:
    formula = parse("x >= 0 since[5:40] y >= 1 and eventually[0:100] x >= 1 or always (x until y)")
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    times = interleave({str(size): partial(formula, traces(size)) for size in sizes}, 2.0)
    exponent = slope([(size, times[str(size)].seconds) for size in sizes])
    rows.append(["growth of the time, T 1e3 to 1e6", f"T^{exponent:.3f}", "", "", verdict(exponent <= 1.03, "<= 1.03")])
    peaks = []
    for size in sizes:
        command = [sys.executable, __file__, "--peak", str(size), "16"]
        own = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # no tensor in memory that was free before
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=own)
        peaks.append((size, float(done.stdout)))
    exponent = slope(peaks)
    rows.append(
        [
            "growth of the memory, 16 traces, T 1e3 to 1e6",
            f"T^{exponent:.3f}",
            "",
            "",
            verdict(exponent <= 1.03, "<= 1.03"),
        ]
    )
    found = traces(1_000_000)
    for text in ("eventually[0:{}] x", "x since[0:{}] y"):
        calls = {str(b): partial(parse(text.format(b)), found) for b in (10, 10_000)}
        times = interleave(calls, 1.5)
        ratio = times["10000"].seconds / times["10"].seconds
        rows.append(
            [f"{text.format('b')}, b = 10,000 against 10", f"{ratio:.2f}x", "", "", verdict(ratio <= 1.5, "<= 1.5x")]
        )
    five = interleave({"ours": partial(parse(FIVE), found)}, 2.0)["ours"].seconds
    rows.append(["1e6 steps, five operators", f"{five * 1e3:.1f} ms", "", "", verdict(five < 0.05, "< 50 ms")])


def slope(points: list[tuple[int, float]]) -> float:
    """The exponent of the line through the logarithms, by least squares."""
    xs, ys = zip(*((math.log(a), math.log(b)) for a, b in points), strict=True)
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum((x - x0) ** 2 for x in xs)


def peak(steps: int, batch: int) -> None:
    """Print the bytes that forward and backward take beyond the signals, at most."""
    formula = parse("x > 0 until y > 0")

    def run(size: int) -> None:
        leaves = {name: value.requires_grad_() for name, value in traces(size, batch, torch.float32).items()}
        formula(leaves)[:, 0].sum().backward()

    run(8)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run(steps)
    print(resident("VmHWM") - before)


def line(what: str, rival: str, times: dict[str, Timing], goal: float) -> list[str]:
    ratio = times[rival].seconds / times["ours"].seconds
    return [
        what,
        show(times["ours"].seconds),
        show(times[rival].seconds),
        f"{ratio:,.0f}x",
        verdict(ratio >= goal, f">= {goal:g}x"),
    ]


def show(seconds: float) -> str:
    return f"{seconds * 1e6:,.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms"


def verdict(reached: bool, goal: str) -> str:
    return f"{goal}: {'reached' if reached else 'NOT reached'}"


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
    rows: list[list[str]] = []
    with threads_set_to(1):
        for part in (offline, online, gradients, growth):
            if arguments.only in (None, part.__name__):
                part(rows)
    console = Console(width=160)
    table = Table("what", "latchwork", "rival", "ratio", "goal", title="Temporal logic")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(
        {key: value for key, value in describe(1).items() if key not in ("minmaxrnc", "mambapy", "minGRU-pytorch")}
    )


if __name__ == "__main__":
    main()
