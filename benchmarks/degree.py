"""State degree n: x_t = (R_t (x) x_{t-1}) (+) s_t with R_t an n x n matrix, on 1 thread.

The limit is a stream (`mix` in stream.cpp) of exactly the bytes of the kernel. In units of the size of s, the
forward scan reads n + 1 (r is n, s is 1) and writes 1; the backward scan reads n + 3 (r, s, x, grad) and
writes n + 1 (the gradients of r and s).
"""

from collections.abc import Callable
from functools import partial

import torch
from rich.table import Table
from torch import Tensor

import stream
from contenders import Problem
from measure import Row, Settings, interleave, progress, threads_set_to
from roofline import compare

DEGREES = (2, 3, 4, 5, 8)
STATE = 40  # numbers of state: STATE // n units of degree n


def inputs(B: int, T: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """r (B, T, U, n, n), s (B, T, U, n) and x0 (B, U, n)."""
    generator = torch.Generator().manual_seed(0)
    U = STATE // n
    r = torch.randn(B, T, U, n, n, generator=generator)
    return r, torch.randn(B, T, U, n, generator=generator), torch.zeros(B, U, n)


def unbind_loop(r: Tensor, s: Tensor, x0: Tensor) -> Tensor:
    x, states = x0, []
    for cap, write in zip(r.unbind(1), s.unbind(1), strict=True):
        x = torch.maximum(torch.minimum(cap, x.unsqueeze(-2)).amax(-1), write)
        states.append(x)
    return torch.stack(states, 1)


def run(settings: Settings) -> list[Row]:
    rows = []
    with threads_set_to(1):
        for n in DEGREES:
            progress(f"degree: {n}")
            row = against_loop(n, settings.seconds) | against_stream(n, settings.seconds)
            rows.append({"degree": n, **row})
    return rows


def against_loop(n: int, seconds: float) -> Row:
    """Forward and backward at (8, 256): ours and the loop."""
    from latchwork import minmax_scan

    r, s, x0 = inputs(8, 256, n)
    leaves, grad = (r.requires_grad_(), s.requires_grad_()), torch.randn_like(s)
    ours = Problem(lambda: minmax_scan(r, s, x0, backend="cpu"), leaves, grad)
    loop = Problem(lambda: unbind_loop(r, s, x0), leaves, grad)
    timings = interleave({"ours": ours.forward_backward, "loop": loop.forward_backward}, seconds)
    times = {name: timing.seconds for name, timing in timings.items()}
    return times | {"ratio": times["loop"] / times["ours"]}


def against_stream(n: int, seconds: float) -> Row:
    """Bytes a second at (64, 512) with warm outputs, and those of the stream; or why there are none."""
    from latchwork.ops.cpu import scan as cpu

    try:
        stream.library()
    except stream.Unavailable as reason:
        return Row(note=f"skipped: {reason}")
    r, s, x0 = inputs(64, 512, n)
    x, grad = cpu.forward(r, s, x0, None, None), torch.randn_like(s)
    gradients = torch.ones_like(r), torch.ones_like(s)
    reading, both = stream.Mix(s.numel(), n + 1, 1), stream.Mix(s.numel(), n + 3, n + 1)
    calls: dict[str, Callable[[], object]] = {
        "forward": partial(cpu.forward, r, s, x0, None, None, out=torch.empty_like(x)),
        "forward limit": reading,
        "backward": partial(cpu.backward, grad, r, s, x, x0, None, None, out=gradients),
        "backward limit": both,
    }
    times = {name: timing.seconds for name, timing in interleave(calls, seconds).items()}
    forward = compare(times, "forward", "forward limit", reading.bytes)
    return forward | compare(times, "backward", "backward limit", both.bytes)


def table(rows: list[Row]) -> Table:
    result = Table(title="Degree n, 40 // n units, 1 thread: ms at (8, 256), both ways; GB/s at (64, 512).")
    columns = ["forward GB/s", "forward limit GB/s", "forward percent"]
    columns += ["backward GB/s", "backward limit GB/s", "backward percent"]
    for heading in ("n", "loop ms", "ours ms", "x", *(column.replace("percent", "%") for column in columns)):
        result.add_column(heading, justify="right")
    result.add_column("notes")
    for row in rows:
        cells = [str(row["degree"]), *(f"{row[name] * 1e3:.2f}" for name in ("loop", "ours"))]
        cells += [f"{row[column]:.1f}" if column in row else "-" for column in ("ratio", *columns)]
        result.add_row(*cells, row.get("note", ""))
    return result
