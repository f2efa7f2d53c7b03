"""latch and window: the recurrence of one state scalar in either direction, and the maximum of a sliding window.

The operators of temporal logic are made of these. Rows are (B, T). Every backend gives the same values, in time linear
in T for a window of any width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.ops import dispatch
from latchwork.ops.cpu import temporal as kernel
from latchwork.ops.reference import reference_window
from latchwork.ops.scan import minmax_scan

Step = int  # 1: forwards in time, -1: backwards


def latch(r: Tensor | None, s: Tensor | None, start: float, step: Step = 1) -> Tensor:
    """x_t = max(min(r_t, x_{t-1}), s_t) from x = start, along rows (B, T); with step -1 from the last step back.

    r or s may be None: then there is no minimum, or no maximum. Values and gradient are those of `minmax_scan`.
    >>> latch(torch.tensor([[9.0, 9.0, 1.0]]), torch.tensor([[5.0, 0.0, 0.0]]), -torch.inf)
    tensor([[5., 5., 1.]])
    """
    rows = r if r is not None else s
    assert rows is not None
    if _choose(rows, r, s) == "cpu":
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

    A window without steps gives -infinity (or +infinity). A NaN in the window gives NaN. The gradient is shared
    evenly by the steps that attain the value.
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
    if (name := _choose(x)) == "reference":
        return reference_window(x, low, high, minimum)
    y: Tensor = torch.ops.latchwork.window(x, low, high, minimum, name)
    return y


def _choose(x: Tensor, *others: Tensor | None) -> str:
    name = dispatch.choose("temporal", "auto", x, *others)
    return "torch" if name == "cpu" and not kernel.takes(x) else name


def _latch_fake(r: Tensor | None, s: Tensor | None, *_: Any) -> Tensor:
    rows = r if r is not None else s
    assert rows is not None
    return rows.new_empty(rows.shape)


def _latch_backward_fake(grad: Tensor, r: Tensor | None, s: Tensor | None, x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty((0,) if r is None else x.shape), x.new_empty((0,) if s is None else x.shape)


def _latch_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    r, s, ctx.start, ctx.step = inputs
    ctx.save_for_backward(r, s, output)


def _latch_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    dispatch.refuse_tangent(grad)
    r, s, x = ctx.saved_tensors
    grad_r, grad_s = torch.ops.latchwork.latch_backward(grad, r, s, x, ctx.start, ctx.step)
    return None if r is None else grad_r, None if s is None else grad_s, None, None


def _window(x: Tensor, low: int, high: int, minimum: bool, backend: str) -> Tensor:
    y: Tensor = dispatch.BACKENDS["temporal"][backend].window(x, low, high, minimum)
    return y


def _window_backward(grad: Tensor, x: Tensor, low: int, high: int, minimum: bool, backend: str) -> Tensor:
    grad_x: Tensor = dispatch.BACKENDS["temporal"][backend].window_backward(grad, x, low, high, minimum)
    return grad_x


def _window_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, *ctx.options = inputs
    ctx.save_for_backward(x)


def _window_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
    dispatch.refuse_tangent(grad)
    (x,) = ctx.saved_tensors
    return torch.ops.latchwork.window_backward(grad, x, *ctx.options), None, None, None, None


dispatch.register(
    "latch(Tensor? r, Tensor? s, float start, int step) -> Tensor",
    kernel.latch,
    _latch_fake,
    _latch_save,
    _latch_gradient,
)
dispatch.register(
    "latch_backward(Tensor grad, Tensor? r, Tensor? s, Tensor x, float start, int step) -> (Tensor, Tensor)",
    kernel.latch_backward,
    _latch_backward_fake,
)
dispatch.register(
    "window(Tensor x, int low, int high, bool minimum, str backend) -> Tensor",
    _window,
    lambda x, *_: x.new_empty(x.shape),
    _window_save,
    _window_gradient,
)
dispatch.register(
    "window_backward(Tensor grad, Tensor x, int low, int high, bool minimum, str backend) -> Tensor",
    _window_backward,
    lambda grad, x, *_: x.new_empty(x.shape),
)
