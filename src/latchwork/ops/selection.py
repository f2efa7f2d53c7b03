"""Recurrences whose every step moves whole levels: row i of a unit takes x[k], or a level s[i] of its own.

It is the MinMax recurrence with r[i, k] = +inf at the chosen k and -inf elsewhere (`as_minmax`), and so a gather. The
MinMax gradient says nothing at such a step about what else to choose: it is zero but for ties. The gradient here is a
**surrogate** instead, straight through the choice: that of x_t[i] = sum_k weights[i, k] x_{t-1}[k], taken where weights
is the choice itself. So the gradient of weights[i, k] is g[i] x_{t-1}[k], and g goes back along the choice alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.ops.algebra import Step
from latchwork.ops.parallel import broadcast_reset
from latchwork.ops.scan import DTYPES


def selection_scan(
    weights: Tensor,
    choice: Tensor,
    x0: Tensor,
    *,
    s: Tensor | None = None,
    reset: Tensor | None = None,
    state: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Run x_t[i] = x_{t-1}[choice_t[i]] from x0 and return every state, (B, T, U, N).

    choice: (B, T, U, N) int64, at least 0 and less than K. weights: (B, T, U, N, K), how much each choice was worth,
    as a softmax gives it; it changes no value and is there to be given the surrogate gradient. x0: (B, U, N) or (U, N).
    K is N; or with s, (U, N), it is N + 1, and where choice is N row i takes s[i].
    reset, state: as in `minmax_scan`. backend: "auto", or "reference", the definition.
    A zero is written as +0. A NaN moves as any level does: here it does not spread.

    >>> choice = torch.tensor([1, 0, 2]).expand(1, 3, 1, 3)  # the first two change places
    >>> selection_scan(F.one_hot(choice, 3).float(), choice, torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[[[2.0, 1.0, 3.0]], [[1.0, 2.0, 3.0]], [[2.0, 1.0, 3.0]]]]
    """
    check_arguments(weights, choice, x0, s, reset, state)
    x0 = x0.to(weights.dtype).expand(choice.shape[:1] + choice.shape[2:])
    start = x0 if state is None else state.to(weights.dtype).expand_as(x0)
    s = None if s is None else s.to(weights.dtype)
    if backend == "reference":
        return reference_selection(weights, choice, start, s, reset, x0)
    if backend != "auto":
        raise ValueError(f"backend {backend!r} is unknown; there are auto, reference")
    x: Tensor = torch.ops.latchwork.selection_scan(weights, choice, start, s, reset, None if reset is None else x0)
    return x


def reference_selection(
    weights: Tensor, choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor
) -> Tensor:
    """The definition: a loop over time, differentiated by autograd."""
    chosen = F.one_hot(choice, weights.shape[-1]).to(weights.dtype) + (weights - weights.detach())
    x, states = state, []
    for t in range(choice.shape[1]):
        if reset is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        options = x.unsqueeze(-2).expand(*x.shape, x.shape[-1])  # (B, U, N, N): every row sees the whole state
        if s is not None:
            options = torch.cat([options, s.expand_as(x).unsqueeze(-1)], -1)
        x = (chosen[:, t] * options).sum(-1)
        states.append(x)
    return torch.stack(states, 1) + 0.0 if states else weights.sum(-1)


def as_minmax(choice: Tensor, s: Tensor | None, low: Tensor | float, high: Tensor | float, dtype: torch.dtype) -> Step:
    """r (..., U, N, N) and s (..., U, N) of the MinMax step that does the same on states from low to high.

    choice: (..., U, N). low, high: (U,) or numbers; infinities serve any state.
    """
    units, degree = choice.shape[-2:]
    low, high = (torch.as_tensor(each, dtype=dtype, device=choice.device) for each in (low, high))
    low, high = (each.expand(units).unsqueeze(-1) for each in (low, high))
    columns = torch.arange(degree, device=choice.device)
    r = torch.where(choice.unsqueeze(-1) == columns, high.unsqueeze(-1), low.unsqueeze(-1))
    written = low.expand(choice.shape) if s is None else torch.where(choice == degree, s.to(dtype), low)
    return r, written


@torch.library.custom_op("latchwork::selection_scan", mutates_args=())
def _scan(
    weights: Tensor, choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None
) -> Tensor:
    out = weights.new_empty(choice.shape)
    x = state
    for t, (choice_t, x_t) in enumerate(zip(choice.unbind(1), out.unbind(1), strict=True)):
        if reset is not None and x0 is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        options = x if s is None else torch.cat([x, x[..., :1]], -1)  # the last column is a place for s
        x = options.gather(-1, choice_t)
        if s is not None:
            x = torch.where(choice_t == s.shape[-1], s, x)
        x_t.copy_(x)
    return out.add_(0.0)


@_scan.register_fake
def _(
    weights: Tensor, choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None
) -> Tensor:
    return weights.new_empty(choice.shape)


@torch.library.custom_op("latchwork::selection_scan_backward", mutates_args=())
def _backward(
    grad: Tensor, choice: Tensor, x: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of weights, state, s and x0; the last two are empty where there is no s, or no reset."""
    degree = choice.shape[-1]
    total = torch.empty_like(grad, memory_format=torch.contiguous_format)  # all that comes back to each state
    carry, grad_x0 = torch.zeros_like(state), torch.zeros_like(state if reset is not None else state[:0])
    for t in reversed(range(choice.shape[1])):
        torch.add(grad[:, t], carry, out=total[:, t])
        carry = carry.new_zeros(*state.shape[:-1], degree + 1).scatter_add_(-1, choice[:, t], total[:, t])[..., :degree]
        if reset is not None:
            now = broadcast_reset(reset[:, t], carry)
            grad_x0 = torch.where(now, grad_x0 + carry, grad_x0)
            carry = carry.masked_fill(now, 0)
    before = torch.cat([state.unsqueeze(1), x], 1)[:, :-1]
    if reset is not None and x0 is not None:
        before = torch.where(broadcast_reset(reset, before), x0.unsqueeze(1), before)
    options = before.unsqueeze(-2)
    if s is not None:
        options = torch.cat([options.expand(*before.shape, degree), s.expand_as(before).unsqueeze(-1)], -1)
    grad_s = total.new_empty(0) if s is None else total.masked_fill(choice != degree, 0).sum((0, 1))
    return total.unsqueeze(-1) * options, carry.contiguous(), grad_s, grad_x0


@_backward.register_fake
def _(
    grad: Tensor, choice: Tensor, x: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    degree = choice.shape[-1]
    grad_weights = grad.new_empty(*choice.shape, degree if s is None else degree + 1)
    grad_s = grad.new_empty(0) if s is None else grad.new_empty(s.shape)
    grad_x0 = state.new_empty(state.shape if reset is not None else (0, *state.shape[1:]))
    return grad_weights, state.new_empty(state.shape), grad_s, grad_x0


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: Tensor) -> None:
    _, choice, state, s, reset, x0 = inputs
    ctx.save_for_backward(choice, output, state, s, reset, x0)  # type: ignore[arg-type]


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    choice, x, state, s, reset, x0 = ctx.saved_tensors  # type: ignore[attr-defined]
    backward = torch.ops.latchwork.selection_scan_backward
    grad_weights, grad_state, grad_s, grad_x0 = backward(grad, choice, x, state, s, reset, x0)
    return grad_weights, None, grad_state, None if s is None else grad_s, None, None if x0 is None else grad_x0


def _no_second_gradient(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> None:
    raise NotImplementedError("selection_scan has no second derivative: its gradient is a surrogate")


_scan.register_autograd(_gradient, setup_context=_save)
_backward.register_autograd(_no_second_gradient)


def check_arguments(
    weights: Tensor, choice: Tensor, x0: Tensor, s: Tensor | None, reset: Tensor | None, state: Tensor | None
) -> None:
    """Raise an error that names the argument that is wrong, what it must be and what it was; s is None without s."""
    if torch.compiler.is_compiling():
        return  # the sizes are open, and may not be compared
    if choice.dim() != 4 or choice.shape[-1] == 0:
        raise ValueError(f"choice must be (B, T, U, N) with N >= 1; got {tuple(choice.shape)}")
    if choice.dtype != torch.int64:
        raise TypeError(f"choice must be int64; got {choice.dtype}")
    units = tuple(choice.shape[2:])
    if s is not None and s.shape != units:
        raise ValueError(f"s must be (U, N) = {units}, or None; got {tuple(s.shape)}")
    options = units[1] + (s is not None)
    if weights.shape != (*choice.shape, options):
        raise ValueError(
            f"weights must be (B, T, U, N, K) = {(*choice.shape, options)}, K being N, or N + 1 with s; "
            f"got {tuple(weights.shape)}"
        )
    if weights.dtype not in DTYPES:
        raise TypeError(f"weights must be float32, float64, bfloat16 or float16; got {weights.dtype}")
    whole = (choice.shape[0], *units)
    for name, value in {"x0": x0, "state": x0 if state is None else state}.items():
        if tuple(value.shape) not in (whole, units):
            raise ValueError(f"{name} must be {whole} or {units}; got {tuple(value.shape)}")
    if reset is not None and (reset.dtype != torch.bool or reset.shape != choice.shape[:2]):
        raise ValueError(
            f"reset must be bool (B, T) = {tuple(choice.shape[:2])}; got {reset.dtype} {tuple(reset.shape)}"
        )
    if choice.numel() and not 0 <= int(choice.amin()) <= int(choice.amax()) < options:
        raise ValueError(f"choice must be at least 0 and less than {options}; got {choice.amin()} to {choice.amax()}")
