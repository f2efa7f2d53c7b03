"""Rows of numbers in time: the recurrence of one state scalar in either direction, and the best of a sliding window.

The operators of temporal logic are made of these. Rows are (B, T). On the CPU in C++ (csrc/temporal.cpp) for float32
and float64; elsewhere in plain torch with the same values. All is linear in T, whatever the window.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from latchwork.ops import cpu
from latchwork.ops.scan import minmax_scan

Step = int  # 1: forwards in time, -1: backwards
MANY = 1 << 17  # numbers; below this a second thread costs more than it does


def latch(r: Tensor | None, s: Tensor | None, start: float, step: Step = 1) -> Tensor:
    """x_t = max(min(r_t, x_{t-1}), s_t) from x = start, along rows (B, T); with step -1 from the last step back.

    r or s may be None: then there is no minimum, or no maximum. Values and gradient are those of `minmax_scan`.
    >>> latch(torch.tensor([[9.0, 9.0, 1.0]]), torch.tensor([[5.0, 0.0, 0.0]]), -torch.inf)
    tensor([[5., 5., 1.]])
    """
    rows = r if r is not None else s
    assert rows is not None
    if _in_kernel(rows):
        x: Tensor = torch.ops.latchwork.latch(r, s, start, step)
        return x
    lowest, highest = rows.new_full((), -torch.inf), rows.new_full((), torch.inf)
    cap, floor = (
        (bound.expand_as(rows) if each is None else each).unsqueeze(-1) for each, bound in ((r, highest), (s, lowest))
    )
    if step == -1:
        cap, floor = cap.flip(1), floor.flip(1)
    states = minmax_scan(cap, floor, rows.new_full((1,), start)).squeeze(-1)
    return states if step == 1 else states.flip(1)


def window(x: Tensor, low: int, high: int, *, minimum: bool = False) -> Tensor:
    """The maximum (or minimum) of x (B, T) over the steps t + low to t + high that are in the row.

    Of no step it is -infinity (or +infinity). A NaN in the window gives NaN. The gradient is shared evenly by the
    steps that attain the value.
    >>> window(torch.tensor([[1.0, 5.0, 2.0, 0.0]]), -1, 0)
    tensor([[1., 5., 5., 2.]])
    """
    if low > high:
        raise ValueError(f"low must be at most high; got {low} and {high}")
    steps = x.shape[1]
    if x.numel() == 0:
        return x.clone()
    if low >= steps or high <= -steps:  # no window touches the row
        return torch.full_like(x, torch.inf if minimum else -torch.inf)
    if low == high == 0:
        return x
    low, high = max(low, 1 - steps), min(high, steps - 1)
    y: Tensor = torch.ops.latchwork.window(x, low, high, minimum)
    return y


def _in_kernel(x: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and cpu.MISSING is None
        and hasattr(cpu.library(), "latchwork_window")
    )


def _call(name: str, rows: Tensor, *arguments: Any) -> None:
    batch, steps = rows.shape
    values = [
        ctypes.c_void_p(None if each is None else each.data_ptr())
        if each is None or isinstance(each, Tensor)
        else (ctypes.c_double if isinstance(each, float) else ctypes.c_int64)(each)
        for each in arguments
    ]
    head = (ctypes.c_int64(each) for each in (cpu.DTYPES[rows.dtype], batch, steps))
    threads = torch.get_num_threads() if rows.numel() >= MANY else 1
    cpu.check(name, getattr(cpu.library(), name)(*head, *values, ctypes.c_int64(threads)))


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


@torch.library.custom_op("latchwork::latch", mutates_args=())
def _latch(r: Tensor | None, s: Tensor | None, start: float, step: int) -> Tensor:
    r, s = _contiguous(r), _contiguous(s)
    rows = r if r is not None else s
    assert rows is not None
    x = torch.empty_like(rows)
    _call("latchwork_latch", rows, r, s, start, step, x)
    return x


@_latch.register_fake
def _(r: Tensor | None, s: Tensor | None, start: float, step: int) -> Tensor:
    rows = r if r is not None else s
    assert rows is not None
    return rows.new_empty(rows.shape)


@torch.library.custom_op("latchwork::latch_backward", mutates_args=())
def _latch_backward(
    grad: Tensor, r: Tensor | None, s: Tensor | None, x: Tensor, start: float, step: int
) -> tuple[Tensor, Tensor]:
    r, s, grad = _contiguous(r), _contiguous(s), grad.contiguous()
    grad_r = x.new_empty((0,) if r is None else x.shape)
    grad_s = x.new_empty((0,) if s is None else x.shape)
    _call("latchwork_latch_back", x, grad, r, s, x, start, step, grad_r, grad_s)
    return grad_r, grad_s


@_latch_backward.register_fake
def _(grad: Tensor, r: Tensor | None, s: Tensor | None, x: Tensor, start: float, step: int) -> tuple[Tensor, Tensor]:
    return x.new_empty((0,) if r is None else x.shape), x.new_empty((0,) if s is None else x.shape)


def _save_latch(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    r, s, ctx.start, ctx.step = inputs
    ctx.save_for_backward(r, s, output)


def _latch_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    r, s, x = ctx.saved_tensors
    grad_r, grad_s = torch.ops.latchwork.latch_backward(grad, r, s, x, ctx.start, ctx.step)
    return None if r is None else grad_r, None if s is None else grad_s, None, None


@torch.library.custom_op("latchwork::window", mutates_args=())
def _window(x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    if not _in_kernel(x):
        return _window_in_torch(x, low, high, minimum)
    x = x.contiguous()
    y = torch.empty_like(x)
    _call("latchwork_window", x, low, high, int(minimum), x, y)
    return y


@_window.register_fake
def _(x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("latchwork::window_backward", mutates_args=())
def _window_backward(grad: Tensor, x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    if not _in_kernel(x):
        return _window_gradient_in_torch(grad, x, low, high, minimum)
    x, grad = x.contiguous(), grad.contiguous()
    grad_x = torch.empty_like(x)
    _call("latchwork_window_back", x, low, high, int(minimum), grad, x, grad_x)
    return grad_x


@_window_backward.register_fake
def _(grad: Tensor, x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    return x.new_empty(x.shape)


def _save_window(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.low, ctx.high, ctx.minimum = inputs
    ctx.save_for_backward(x)


def _window_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    (x,) = ctx.saved_tensors
    return torch.ops.latchwork.window_backward(grad, x, ctx.low, ctx.high, ctx.minimum), None, None, None


def _no_second_gradient(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("latch and window have no second derivative: call backward without create_graph=True")


_latch.register_autograd(_latch_gradient, setup_context=_save_latch)
_latch_backward.register_autograd(_no_second_gradient)
_window.register_autograd(_window_gradient, setup_context=_save_window)
_window_backward.register_autograd(_no_second_gradient)


# The window in plain torch. Blocks have the window's width, so a window ends one block and begins the next: its best is
# the better of two, of its first step to that block's end, and of the next block's start to its last step.


def _blocks(x: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """x in blocks (B, blocks, width), the best from each block's start to each step, and from each step to its end."""
    steps = x.shape[1]
    whole = -(-steps // width) * width
    blocks = torch.nn.functional.pad(x, (0, whole - steps), value=-torch.inf).reshape(len(x), -1, width)
    return blocks, blocks.cummax(2).values, blocks.flip(2).cummax(2).values.flip(2)


def _ends(steps: int, low: int, high: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each step: the window's first and last step, clipped; whether it has the first part, whether the second."""
    time = torch.arange(steps, device=device)
    first, last = (time + low).clamp(0, steps - 1), (time + high).clamp(0, steps - 1)
    width = high - low + 1
    some = (time + low < steps) & (time + high >= 0)
    opening = time + low <= 0
    return first, last, some & ~opening, some & (opening | (first // width != last // width))


def _window_in_torch(x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    x = -x if minimum else x
    _, starting, ending = _blocks(x, high - low + 1)
    first, last, left, right = _ends(x.shape[1], low, high, x.device)
    y = torch.maximum(
        ending.flatten(1)[:, first].masked_fill(~left, -torch.inf),
        starting.flatten(1)[:, last].masked_fill(~right, -torch.inf),
    )
    return -y if minimum else y


def _attains(a: Tensor, best: Tensor) -> Tensor:
    return (a == best) | (a.isnan() & best.isnan())


def _runs(x: Tensor, best: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Along blocks (B, blocks, width): who attains the best so far, how many do so far, and the run's first place."""
    hit = _attains(x, best) & inside
    fresh = torch.ones_like(hit)
    fresh[..., 1:] = ~_attains(best[..., :-1], best[..., 1:])
    place = torch.arange(x.shape[2], device=x.device).expand_as(x)
    start = torch.where(fresh, place, 0).cummax(2).values
    total = hit.long().cumsum(2)
    return hit, total - total.gather(2, start) + hit.long().gather(2, start), start


def _shares(grad: Tensor, hit: Tensor, start: Tensor) -> Tensor:
    """To each step that attains the best: the sum of grad from it to the end of the run of one best."""
    later = grad.flip(2).cumsum(2).flip(2)
    width = start.shape[2]
    ends = torch.ones_like(hit)
    ends[..., :-1] = start[..., 1:] != start[..., :-1]
    place = torch.arange(width, device=grad.device).expand_as(start)
    end = torch.where(ends, place, width).flip(2).cummin(2).values.flip(2)
    behind = torch.nn.functional.pad(later, (0, 1))[..., 1:].gather(2, end)  # the sum of grad behind each step's run
    return torch.where(hit, later - behind, 0.0)


def _window_gradient_in_torch(grad: Tensor, x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    dtype, steps = x.dtype, x.shape[1]
    x = -x if minimum else x
    blocks, starting, ending = _blocks(x, high - low + 1)
    first, last, left, right = _ends(steps, low, high, x.device)
    inside = (
        torch.arange(blocks[0].numel(), device=x.device).view_as(blocks[0]) < steps
    )  # the rest fills the last block
    hit_s, count_s, run_s = _runs(blocks, starting, inside)
    hit_e, count_e, run_e = _runs(blocks.flip(2), ending.flip(2), inside.flip(1))
    parts = [
        (ending.flatten(1)[:, first], count_e.flip(2).flatten(1)[:, first], left),
        (starting.flatten(1)[:, last], count_s.flatten(1)[:, last], right),
    ]
    (best_e, number_e, left), (best_s, number_s, right) = parts
    best = torch.maximum(best_e.masked_fill(~left, -torch.inf), best_s.masked_fill(~right, -torch.inf))
    takes_e, takes_s = left & _attains(best_e, best), right & _attains(best_s, best)
    number = number_e * takes_e + number_s * takes_s
    share = grad.double() / number.clamp(min=1)
    zeros = torch.zeros(x.shape[0], blocks.shape[1] * blocks.shape[2], dtype=torch.float64, device=x.device)
    to_e = zeros.index_add(1, first, share * takes_e).view_as(blocks)
    to_s = zeros.index_add(1, last, share * takes_s).view_as(blocks)
    total = _shares(to_s, hit_s, run_s) + _shares(to_e.flip(2), hit_e, run_e).flip(2)
    return total.flatten(1)[:, :steps].to(dtype)
