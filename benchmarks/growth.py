"""How the time grows with T, and what a second thread gains on one long sequence.

Two rows are the public call, which allocates what it returns: memory fresh from the system costs page faults,
and above some size every tensor is. The warm rows are the kernel alone, with outputs that are already there.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial

import torch
from rich.table import Table

from contenders import CONTENDERS, OURS, Inputs
from measure import Row, Settings, interleave, progress, threads_set_to

LENGTHS = tuple(2**k for k in range(10, 21))
WIDTH = 40


def run(settings: Settings) -> list[Row]:
    """One row a mode: seconds at each T, the slope of their logarithms, and the time of 1 thread over 2."""
    rows = []
    modes = {T: calls(Inputs((1, T, WIDTH))) for T in LENGTHS}
    for mode in modes[LENGTHS[0]]:
        progress(f"growth: {mode}")
        with threads_set_to(1):
            timings = interleave({str(T): modes[T][mode] for T in LENGTHS}, settings.seconds)
        times = {T: timings[str(T)].seconds for T in LENGTHS}
        slope, _ = statistics.linear_regression(logarithms(LENGTHS), logarithms(times.values()))
        longest = modes[LENGTHS[-1]][mode]
        pair = interleave({str(n): with_threads(n, longest) for n in (1, 2)}, settings.seconds, time.perf_counter)
        gain = pair["1"].seconds / pair["2"].seconds
        rows.append(Row(mode=mode, seconds=times, exponent=slope, gain=gain))
    return rows


def calls(inputs: Inputs) -> dict[str, Callable[[], object]]:
    from latchwork.ops.cpu import scan as cpu

    problem = CONTENDERS[OURS].prepare(inputs)
    r, s, x0, grad = inputs.r.detach(), inputs.s.detach(), inputs.x0, inputs.grad
    x = cpu.forward(r, s, x0, None, None)
    gradients = torch.ones_like(r), torch.ones_like(s)
    return {
        "forward": problem.forward,
        "forward+backward": problem.forward_backward,
        "forward, warm": partial(cpu.forward, r, s, x0, None, None, out=torch.empty_like(x)),
        "backward, warm": partial(cpu.backward, grad, r, s, x, x0, None, None, out=gradients),
    }


def logarithms(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]


def with_threads(threads: int, call: Callable[[], object]) -> Callable[[], object]:
    def bound() -> object:
        with threads_set_to(threads):
            return call()

    return bound


def table(rows: list[Row]) -> Table:
    result = Table(title=f"Growth of {OURS} at (1, T, {WIDTH}): ms on 1 thread; gain of a second thread.")
    result.add_column("mode")
    for T in LENGTHS:
        result.add_column(f"2^{int(math.log2(T))}", justify="right")
    result.add_column("exponent", justify="right")
    result.add_column("2 threads", justify="right")
    for row in rows:
        times = [f"{seconds * 1e3:.3g}" for seconds in row["seconds"].values()]
        result.add_row(row["mode"], *times, f"{row['exponent']:.3f}", f"x {row['gain']:.2f}")
    return result
