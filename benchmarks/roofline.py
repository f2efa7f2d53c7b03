"""How near the kernel comes to the physical limit: streams over the same bytes, in the same run.

The forward scan reads r and s and writes x, as STREAM's triad; the backward scan reads grad, r, s and x and
writes grad_r and grad_s, as the stream of four reads and two writes. The streams read the very tensors that
the kernel reads, and all write to memory that is already there. Bytes are counted as STREAM counts them,
without write-allocation.
"""

from collections.abc import Callable
from functools import partial

import torch
from rich.table import Table

import stream
from contenders import Inputs
from measure import Row, Settings, interleave, progress, threads_set_to


def run(settings: Settings) -> list[Row]:
    rows = []
    for shape in settings.shapes:
        for threads in settings.threads:
            progress(f"stream: {shape}, {threads} thread(s)")
            with threads_set_to(threads), torch.no_grad():
                rows.append(Row(shape=shape, threads=threads, **measure(Inputs(shape), settings.seconds)))
    return rows


def measure(inputs: Inputs, seconds: float) -> Row:
    """Gigabytes a second of kernel and limit, forward and backward, and percentages; or why none."""
    from latchwork.ops.cpu import scan as cpu

    r, s, x0, grad = inputs.r.detach(), inputs.s.detach(), inputs.x0, inputs.grad
    first, second, grad_r, grad_s = (torch.ones_like(r) for _ in range(4))
    try:
        stream.library()
        x = cpu.forward(r, s, x0, None, None)
    except (stream.Unavailable, OSError, RuntimeError) as reason:
        return Row(note=f"skipped: {reason}")
    calls: dict[str, Callable[[], object]] = {
        "forward": partial(cpu.forward, r, s, x0, None, None, out=torch.empty_like(x)),
        "triad": partial(stream.triad, r, s, first),
        "backward": partial(cpu.backward, grad, r, s, x, x0, None, None, out=(grad_r, grad_s)),
        "four reads, two writes": partial(stream.four_two, (grad, r, s, x), (first, second)),
    }
    times = {name: timing.seconds for name, timing in interleave(calls, seconds).items()}
    forward = compare(times, "forward", "triad", 3 * r.nbytes)
    return forward | compare(times, "backward", "four reads, two writes", 6 * r.nbytes)


def compare(times: dict[str, float], kernel: str, limit: str, size: int) -> Row:
    return {
        f"{kernel} GB/s": size / times[kernel] / 1e9,
        f"{limit} GB/s": size / times[limit] / 1e9,
        f"{kernel} percent": 100 * times[limit] / times[kernel],
    }


def table(rows: list[Row]) -> Table:
    result = Table(title="Physical limit: GB/s with warm outputs; % of the stream that moves the same bytes.")
    columns = ["forward GB/s", "triad GB/s", "forward percent"]
    columns += ["backward GB/s", "four reads, two writes GB/s", "backward percent"]
    result.add_column("B, T, D")
    result.add_column("threads")
    for column in columns:
        result.add_column(column.replace("percent", "%"), justify="right")
    result.add_column("notes")
    for row in rows:
        cells = [f"{row[column]:.1f}" if column in row else "-" for column in columns]
        result.add_row(str(row["shape"]), str(row["threads"]), *cells, row.get("note", ""))
    return result
