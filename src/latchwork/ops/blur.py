"""The recurrence of degree one with a gradient that numbers close to each other share.

The gradient of x_t = max(min(r_t, x_{t-1}), s_t) goes to one of its three arguments, and tells the others nothing,
however little they missed. Here two numbers within `blur` of each other share it, in proportion to where they stand:
evenly if they are equal, as in `minmax_scan`, and all to one of them from `blur` on. It is the gradient that
`minmax_scan` has on the average if every comparison is disturbed by noise, uniform in +-blur: a **surrogate**, for
training. The states are those of `minmax_scan`, bit for bit.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from latchwork.ops import cpu
from latchwork.ops.parallel import Gradients, broadcast_reset, states_before
from latchwork.ops.scan import BACKENDS, autocasts, check_arguments, choose, promote


def blurred_scan(
    r: Tensor,
    s: Tensor,
    x0: Tensor,
    *,
    blur: float,
    reset: Tensor | None = None,
    state: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """`minmax_scan` of degree one, r and s (B, T, D), with the surrogate gradient.

    blur: positive and finite. All else as in `minmax_scan`; with backend "triton" the states come from its kernel, and
    the gradient from a loop in torch.

    >>> r, s, x0 = (torch.tensor([[[each]]], requires_grad=True) for each in (1.0, 0.0, 1.25))
    >>> blurred_scan(r, s, x0[0, 0], blur=0.5).backward()  # x0 misses r by half of the blur
    >>> r.grad.item(), s.grad.item(), x0.grad.item()
    (0.75, 0.0, 0.25)
    """
    if not 0 < blur < inf:
        raise ValueError(f"blur must be positive and finite; got {blur}")
    if autocasts(r):
        r, s, x0, state = promote(r, s, x0, state)
    check_arguments(r, s, x0, reset, state)
    if r.dim() != 3:
        raise ValueError(f"r must be (B, T, D): a blurred gradient is of degree one; got {tuple(r.shape)}")
    x0 = x0.expand(s.shape[:1] + s.shape[2:])
    state = x0 if state is None else state.expand_as(x0)
    start = None if reset is None else x0
    if backend == "reference":
        return reference_blurred(r, s, state, reset, start, blur)
    x: Tensor = torch.ops.latchwork.blurred_scan(r, s, state, reset, start, float(blur), choose(backend, r))
    return x


def share(a: Tensor, b: Tensor, blur: float) -> Tensor:
    """How much of a gradient goes to a in max(a, b), or to b in min(a, b)."""
    apart = torch.where(a == b, 0.0, a - b)  # equal infinities too
    return (apart * (0.5 / blur) + 0.5).clamp(0, 1)


def reference_blurred(
    r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, blur: float
) -> Tensor:
    """The definition, for finite numbers: a loop over time, differentiated by autograd; shapes as in `reference_scan`.

    Each of min and max is a mean weighted by the shares; to its value, which is not that of min and max, the difference
    is added, without a gradient.
    """
    dtype, wide = s.dtype, torch.promote_types(s.dtype, torch.float32)
    r, s, x = r.to(wide), s.to(wide), state.to(wide)
    x0 = None if x0 is None else x0.to(wide)
    states = []
    for t, (r_t, s_t) in enumerate(zip(r.unbind(1), s.unbind(1), strict=True)):
        if reset is not None and x0 is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        of_r = share(x, r_t, blur).detach()
        m = _straight_through(torch.minimum(r_t, x), of_r * r_t + (1 - of_r) * x)
        of_s = share(s_t, m, blur).detach()
        x = _straight_through(torch.maximum(m, s_t), of_s * s_t + (1 - of_s) * m)
        states.append(x)
    x = torch.stack(states, 1) if states else s
    return (x + 0.0).to(dtype)


def _straight_through(value: Tensor, mean: Tensor) -> Tensor:
    """value, with the gradient of mean: what is added is 0 and carries it."""
    return value.detach() + (mean - mean.detach())


def backward(
    grad: Tensor,
    r: Tensor,
    s: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    blur: float,
) -> Gradients:
    """The surrogate gradient from the states x, by torch: every share at once, then a loop for the sums alone."""
    dtype, wide = s.dtype, torch.promote_types(s.dtype, torch.float32)
    grad, r, s, x = grad.to(wide), r.to(wide), s.to(wide), x.to(wide)
    before = states_before(x, state, reset, x0)
    of_r, of_s = share(before, r, blur), share(s, torch.minimum(r, before), blur)
    not_s, not_r = 1 - of_s, 1 - of_r
    total = torch.empty_like(grad)
    carry, grad_x0 = torch.zeros_like(state, dtype=wide), torch.zeros_like(state, dtype=wide)
    steps = list(zip(*(a.unbind(1) for a in (grad, total, not_s, not_r)), strict=True))
    for t, (grad_t, total_t, not_s_t, not_r_t) in reversed(list(enumerate(steps))):
        torch.add(grad_t, carry, out=total_t)
        carry = (total_t * not_s_t).mul_(not_r_t)
        if reset is not None:
            now = broadcast_reset(reset[:, t], carry)
            grad_x0 = torch.where(now, grad_x0 + carry, grad_x0)
            carry = carry.masked_fill_(now, 0)
    grad_r, grad_s = total * not_s * of_r, total * of_s
    return grad_r.to(dtype), grad_s.to(dtype), carry.to(dtype), None if reset is None else grad_x0.to(dtype)


@torch.library.custom_op("latchwork::blurred_scan", mutates_args=())
def _scan(
    r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, blur: float, backend: str
) -> Tensor:
    return BACKENDS[backend].forward(r, s, state, reset, x0)


@_scan.register_fake
def _(
    r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, blur: float, backend: str
) -> Tensor:
    return s.new_empty(s.shape)


@torch.library.custom_op("latchwork::blurred_scan_backward", mutates_args=())
def _scan_backward(
    grad: Tensor,
    r: Tensor,
    s: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    blur: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    run = cpu.backward if backend == "cpu" else backward
    grad_r, grad_s, grad_state, grad_x0 = run(grad, r, s, x, state, reset, x0, blur=blur)
    return grad_r, grad_s, grad_state, state.new_empty(0) if grad_x0 is None else grad_x0


@_scan_backward.register_fake
def _(
    grad: Tensor,
    r: Tensor,
    s: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    blur: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_x0 = state.new_empty(0 if reset is None else state.shape)
    return r.new_empty(r.shape), s.new_empty(s.shape), state.new_empty(state.shape), grad_x0


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: Tensor) -> None:
    r, s, state, reset, x0, blur, backend = inputs
    ctx.save_for_backward(r, s, output, state, reset, x0)  # type: ignore[arg-type]
    ctx.blur, ctx.backend = blur, backend  # type: ignore[attr-defined]


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    r, s, x, state, reset, x0 = ctx.saved_tensors  # type: ignore[attr-defined]
    run = torch.ops.latchwork.blurred_scan_backward
    grad_r, grad_s, grad_state, grad_x0 = run(grad, r, s, x, state, reset, x0, ctx.blur, ctx.backend)  # type: ignore[attr-defined]
    return grad_r, grad_s, grad_state, None, grad_x0 if x0 is not None else None, None, None


def _no_second_gradient(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> None:
    raise NotImplementedError(
        "blurred_scan has no second derivative: call backward without create_graph=True, "
        'or use backend="reference", which autograd differentiates twice'
    )


_scan.register_autograd(_gradient, setup_context=_save)
_scan_backward.register_autograd(_no_second_gradient)
