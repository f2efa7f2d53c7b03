"""Forward, and forward and backward, of every contender on every shape."""

import math
from collections.abc import Callable
from functools import partial

from rich.table import Table

from contenders import CONTENDERS, Inputs, Problem
from machine import available_memory
from measure import Row, Settings, Shape, interleave, progress, threads_set_to, time_once

MODES: dict[str, Callable[[Problem], object]] = {
    "forward": Problem.forward,
    "forward+backward": Problem.forward_backward,
}
PROBE = 16  # a contender is first tried on T / PROBE steps


class Skipped(Exception):
    """Why a contender is not measured."""


def run(settings: Settings) -> list[Row]:
    rows = []
    for shape in settings.shapes:
        inputs = Inputs(shape)
        for threads in settings.threads:
            progress(f"speed: {shape}, {threads} thread(s)")
            with threads_set_to(threads):
                rows += compare(inputs, settings, threads)
    return rows


def compare(inputs: Inputs, settings: Settings, threads: int) -> list[Row]:
    """One row a contender, on these inputs, with the current number of threads."""
    probe = Inputs(shortened(inputs.shape))
    rows = {
        name: Row(shape=inputs.shape, threads=threads, contender=name, baseline=contender.baseline, notes={})
        for name, contender in CONTENDERS.items()
        if settings.compiled or not contender.compiles
    }
    for mode in MODES:
        calls = {}
        for name, row in rows.items():
            try:
                calls[name] = admit(name, inputs, probe, mode, settings.longest_call, row["notes"])
            except Skipped as reason:
                row["notes"][mode] = str(reason)
        for name, timing in interleave(calls, settings.seconds).items():
            rows[name][mode] = timing.seconds
            rows[name][f"{mode} calls"] = timing.calls
    for row in rows.values():
        for mode in MODES:
            if mode in row and mode in rows[row["baseline"]]:
                row[f"{mode} ratio"] = row[mode] / rows[row["baseline"]][mode]
    return list(rows.values())


def admit(
    name: str, inputs: Inputs, probe: Inputs, mode: str, longest: float, notes: dict[str, str]
) -> Callable[[], object]:
    """The call to time, after a trial on the probe, or on the inputs themselves where it must be compiled."""
    contender = CONTENDERS[name]
    size = inputs.r.nbytes * contender.memory(inputs.shape[1])
    if math.prod(inputs.shape) > contender.largest:
        raise Skipped(f"skipped: {contender.why_not_larger}")
    if mode != "forward" and size > 0.8 * available_memory():
        raise Skipped(f"skipped: needs about {size / 2**30:.0f} GB")
    try:
        problem = contender.prepare(inputs)
        trial = problem if contender.compiles else contender.prepare(probe)
        first, second = (time_once(partial(MODES[mode], trial)) for _ in range(2))
    except ImportError as reason:
        advice = f"pip install {contender.requirement}" if contender.requirement else str(reason)
        raise Skipped(f"not installed: {advice}") from None
    except (RuntimeError, ValueError) as reason:
        raise Skipped(f"failed: {reason}") from None
    predicted = min(first, second) * inputs.shape[1] / (inputs if contender.compiles else probe).shape[1]
    if predicted > longest:
        raise Skipped(f"skipped: would take about {predicted:.0f} s")
    if contender.compiles:
        notes[mode] = f"compiled in {first:.0f} s"
    return partial(MODES[mode], problem)


def shortened(shape: Shape) -> Shape:
    B, T, D = shape
    return B, max(1, T // PROBE), D


def table(rows: list[Row]) -> Table:
    result = Table(title="Speed. x: times as long as ours on cpu, layer by layer. (n): fewer than 10 calls.")
    for heading in ("B, T, D", "threads", "contender"):
        result.add_column(heading)
    for mode in MODES:
        result.add_column(f"{mode} ms", justify="right")
        result.add_column("x", justify="right")
    result.add_column("notes")
    previous = None
    for row in rows:
        group = row["shape"], row["threads"]
        if previous not in (None, group):
            result.add_section()
        previous = group
        cells = [str(group[0]), str(group[1]), row["contender"]]
        for mode in MODES:
            few = f" ({row[f'{mode} calls']})" if row.get(f"{mode} calls", 10) < 10 else ""
            cells.append(f"{row[mode] * 1e3:.2f}{few}" if mode in row else "-")
            cells.append(f"{row[f'{mode} ratio']:.1f}" if f"{mode} ratio" in row else "-")
        result.add_row(*cells, remark(row["notes"]))
    return result


def remark(notes: dict[str, str]) -> str:
    """The notes on the modes in one text, once where it is the same for all."""
    if len(notes) == len(MODES) and len(set(notes.values())) == 1:
        return next(iter(notes.values()))
    return "; ".join(f"{mode} {note}" for mode, note in notes.items())
