"""latch and window: the recurrence of one state scalar in either direction, and the maximum of a sliding window.

The operators of temporal logic are made of these. Rows are (B, T). Every backend gives the same values and gradients.
The C++ kernel takes time linear in T for a window of any width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.ops import dispatch
from latchwork.ops.cpu import temporal as kernel
from latchwork.ops.reference import reference_latch, reference_window
from latchwork.ops.scan import minmax_scan

Step = int  # 1: forwards in time, -1: backwards


def latch(r: Tensor, s: Tensor, step: Step = 1, width: int | None = None) -> Tensor:
    """x_t = max(min(r_t, x_{t-1}), s_t) from -infinity, along rows (B, T); with step -1 from the last step back.

    Values and gradient are those of `minmax_scan`. width: x_t is of the last `width` steps alone, as if the recurrence
    started with them; the gradient is that of the loop over these steps.
    >>> r, s = torch.tensor([[9.0, 9.0, 9.0, 1.0]]), torch.tensor([[5.0, 0.0, 3.0, 0.0]])
    >>> latch(r, s)
    tensor([[5., 5., 5., 1.]])
    >>> latch(r, s, width=2)
    tensor([[5., 5., 3., 1.]])
    """
    if width is not None and width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
    if width == 1:
        return s
    if width is not None and width > r.shape[1]:
        width = None
    name = _choose(r, s)
    if name == "cpu" or (name == "torch" and width):
        x: Tensor = torch.ops.latchwork.latch(r, s, step, width or 0, name)
        return x
    if step == -1:
        return latch(r.flip(1), s.flip(1), 1, width).flip(1)
    if width is not None:
        return reference_latch(r, s, width)
    return minmax_scan(r.unsqueeze(-1), s.unsqueeze(-1), r.new_full((1,), -torch.inf)).squeeze(-1)


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


def _latch(r: Tensor, s: Tensor, step: int, width: int, backend: str) -> Tensor:
    x: Tensor = dispatch.BACKENDS["temporal"][backend].latch(r, s, step, width)
    return x


def _latch_backward(
    grad: Tensor, r: Tensor, s: Tensor, x: Tensor, step: int, width: int, backend: str
) -> tuple[Tensor, Tensor]:
    grads: tuple[Tensor, Tensor] = dispatch.BACKENDS["temporal"][backend].latch_backward(grad, r, s, x, step, width)
    return grads


def _latch_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    r, s, *ctx.options = inputs
    ctx.save_for_backward(r, s, output)


def _latch_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
    dispatch.refuse_tangent(grad)
    return *torch.ops.latchwork.latch_backward(grad, *ctx.saved_tensors, *ctx.options), None, None, None


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
    "latch(Tensor r, Tensor s, int step, int width, str backend) -> Tensor",
    _latch,
    lambda r, *_: r.new_empty(r.shape),
    _latch_save,
    _latch_gradient,
)
dispatch.register(
    "latch_backward(Tensor grad, Tensor r, Tensor s, Tensor x, int step, int width, str backend) -> (Tensor, Tensor)",
    _latch_backward,
    lambda grad, r, *_: (r.new_empty(r.shape), r.new_empty(r.shape)),
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
