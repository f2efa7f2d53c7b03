"""Recurrences whose every step sends whole levels: level k of a unit goes to place choice[k], and the largest stays.

It is the MinMax recurrence with r[i, k] = +inf where choice[k] is i and 0 elsewhere, and s = 0 (`as_minmax`), over
levels that are at least 0: any transformation of the places, also one that sends two to the same. The gradient is a
**surrogate**, straight through the choice as in ops/selection.py: that of x_t[i] = sum_k weights[k, i] x_{t-1}[k],
taken where weights is the choice itself. So the gradient of weights[k, i] is x_{t-1}[k] g[i], and to x_{t-1}[k] goes
back what comes to the place it went to, also if it was not the largest there. For the state this is exact where at most
one of those that meet is not 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.ops.algebra import Step
from latchwork.ops.parallel import broadcast_reset
from latchwork.ops.selection import check_arguments


def transformation_scan(
    weights: Tensor,
    choice: Tensor,
    x0: Tensor,
    *,
    reset: Tensor | None = None,
    state: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Run x_t[i] = max(0, max over k with choice_t[k] = i of x_{t-1}[k]) and return every state, (B, T, U, N).

    choice: (B, T, U, N) int64, at least 0 and less than N: where each level goes. A place to which none comes is 0.
    weights: (B, T, U, N, N), how much each choice was worth, as a softmax gives it; it changes no value and is there to
    be given the surrogate gradient. x0: (B, U, N) or (U, N), at least 0.
    reset, state: as in `minmax_scan`, state at least 0. backend: "auto", or "reference", the definition.
    A zero is written as +0. A NaN goes where it is sent and stays there: here it does not spread.

    >>> choice = torch.tensor([[[[1, 2, 0]], [[0, 0, 2]]]])  # all move on by one; the first two come together
    >>> transformation_scan(F.one_hot(choice, 3).float(), choice, torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[[[3.0, 1.0, 2.0]], [[3.0, 0.0, 2.0]]]]
    """
    check_arguments(weights, choice, x0, None, reset, state)
    _check_levels(x0, state)
    x0 = x0.to(weights.dtype).expand(choice.shape[:1] + choice.shape[2:])
    start = x0 if state is None else state.to(weights.dtype).expand_as(x0)
    if backend == "reference":
        return reference_transformation(weights, choice, start, reset, x0)
    if backend != "auto":
        raise ValueError(f"backend {backend!r} is unknown; there are auto, reference")
    x: Tensor = torch.ops.latchwork.transformation_scan(weights, choice, start, reset, None if reset is None else x0)
    return x


def reference_transformation(
    weights: Tensor, choice: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor
) -> Tensor:
    """The definition, for finite levels: a loop over time, differentiated by autograd."""
    sent = F.one_hot(choice, weights.shape[-1]).bool()  # (B, T, U, N, N): from k to i
    straight = sent.to(weights.dtype) + (weights - weights.detach())
    x, states = state, []
    for t in range(choice.shape[1]):
        if reset is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        linear = (straight[:, t] * x.unsqueeze(-1)).sum(-2)
        largest = torch.where(sent[:, t], x.unsqueeze(-1), 0.0).amax(-2)
        x = largest.detach() + (linear - linear.detach())  # the value of the one, the gradient of the other
        states.append(x)
    return torch.stack(states, 1) + 0.0 if states else weights.sum(-1)


def as_minmax(choice: Tensor, high: Tensor | float, dtype: torch.dtype) -> Step:
    """r (..., U, N, N) and s (..., U, N) of the MinMax step that does the same on states from 0 to high.

    choice: (..., U, N). high: (U,) or a number; infinity serves any state.
    """
    units, degree = choice.shape[-2:]
    high = torch.as_tensor(high, dtype=dtype, device=choice.device).expand(units)[:, None, None]
    places = torch.arange(degree, device=choice.device).unsqueeze(-1)
    r = torch.where(choice.unsqueeze(-2) == places, high, torch.zeros_like(high))
    return r, r.new_zeros(choice.shape)


@torch.library.custom_op("latchwork::transformation_scan", mutates_args=())
def _scan(weights: Tensor, choice: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None) -> Tensor:
    out = weights.new_zeros(choice.shape)
    x = state
    for t, (choice_t, x_t) in enumerate(zip(choice.unbind(1), out.unbind(1), strict=True)):
        if reset is not None and x0 is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        x = x_t.scatter_reduce_(-1, choice_t, x, "amax")
    return out.add_(0.0)


@_scan.register_fake
def _(weights: Tensor, choice: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None) -> Tensor:
    return weights.new_empty(choice.shape)


@torch.library.custom_op("latchwork::transformation_scan_backward", mutates_args=())
def _backward(
    grad: Tensor, choice: Tensor, x: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of weights, state and x0; the last is empty where there is no reset."""
    total = torch.empty_like(grad, memory_format=torch.contiguous_format)  # all that comes back to each state
    carry, grad_x0 = torch.zeros_like(state), torch.zeros_like(state if reset is not None else state[:0])
    for t in reversed(range(choice.shape[1])):
        torch.add(grad[:, t], carry, out=total[:, t])
        carry = total[:, t].gather(-1, choice[:, t])
        if reset is not None:
            now = broadcast_reset(reset[:, t], carry)
            grad_x0 = torch.where(now, grad_x0 + carry, grad_x0)
            carry = carry.masked_fill(now, 0)
    before = torch.cat([state.unsqueeze(1), x], 1)[:, :-1]
    if reset is not None and x0 is not None:
        before = torch.where(broadcast_reset(reset, before), x0.unsqueeze(1), before)
    return before.unsqueeze(-1) * total.unsqueeze(-2), carry, grad_x0


@_backward.register_fake
def _(
    grad: Tensor, choice: Tensor, x: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    grad_x0 = state.new_empty(state.shape if reset is not None else (0, *state.shape[1:]))
    return grad.new_empty(*choice.shape, choice.shape[-1]), state.new_empty(state.shape), grad_x0


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: Tensor) -> None:
    _, choice, state, reset, x0 = inputs
    ctx.save_for_backward(choice, output, state, reset, x0)  # type: ignore[arg-type]


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    choice, x, state, reset, x0 = ctx.saved_tensors  # type: ignore[attr-defined]
    backward = torch.ops.latchwork.transformation_scan_backward
    grad_weights, grad_state, grad_x0 = backward(grad, choice, x, state, reset, x0)
    return grad_weights, None, grad_state, None, None if x0 is None else grad_x0


def _no_second_gradient(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> None:
    raise NotImplementedError("transformation_scan has no second derivative: its gradient is a surrogate")


_scan.register_autograd(_gradient, setup_context=_save)
_backward.register_autograd(_no_second_gradient)


def _check_levels(x0: Tensor, state: Tensor | None) -> None:
    if torch.compiler.is_compiling():
        return
    for name, value in {"x0": x0, "state": x0 if state is None else state}.items():
        if value.numel() and (least := value.detach().amin()) < 0:
            raise ValueError(f"{name} must be at least 0; got {least.item()}")
