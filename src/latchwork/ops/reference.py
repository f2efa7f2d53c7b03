"""The definitions: loops over time, differentiated by autograd. Every backend equals them."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops.algebra import apply
from latchwork.ops.torch.moves import check_choice
from latchwork.ops.torch.scan import broadcast_reset


def reference_scan(
    r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None = None, x0: Tensor | None = None
) -> Tensor:
    """Every state of x_t = (r_t (x) x_{t-1}) (+) s_t from x_{-1} = state.

    Degree one: r, s (B, T, D), state and x0 (B, D). Degree n: r (B, T, U, N, N), s (B, T, U, N), state and x0
    (B, U, N). Where reset (B, T) is true, the state before that step is x0. Half types are widened first, which changes
    no value and keeps the sums of the gradient in float32. A zero is always written as +0.
    """
    dtype, wide = s.dtype, torch.promote_types(s.dtype, torch.float32)
    r, s, x = r.to(wide), s.to(wide), state.to(wide)
    x0 = None if x0 is None else x0.to(wide)
    states = []
    for t, (r_t, s_t) in enumerate(zip(r.unbind(1), s.unbind(1), strict=True)):
        if reset is not None and x0 is not None:
            x = torch.where(reset[:, t].reshape(-1, *[1] * (x.dim() - 1)), x0, x)
        x = apply(r_t, s_t, x)
        states.append(x)
    x = torch.stack(states, 1) if states else s
    return (x + 0.0).to(dtype)


def reference_selection(
    weights: Tensor, choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor
) -> Tensor:
    """Every state of `selection_scan`, for finite levels. s: (B, U, N)."""
    check_choice(choice, weights.shape[-1])
    options = torch.arange(weights.shape[-1], device=choice.device)
    chosen = (choice.unsqueeze(-1) == options).to(weights.dtype) + (weights - weights.detach())
    x, states = state, []
    for t in range(choice.shape[1]):
        if reset is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        options = x.unsqueeze(-2).expand(*x.shape, x.shape[-1])  # (B, U, N, N): every row sees the whole state
        if s is not None:
            options = torch.cat([options, s.unsqueeze(-1)], -1)
        x = (chosen[:, t] * options).sum(-1)
        states.append(x)
    return torch.stack(states, 1) + 0.0 if states else weights.sum(-1)


def reference_transformation(
    weights: Tensor, choice: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor
) -> Tensor:
    """Every state of `transformation_scan`, for finite levels."""
    check_choice(choice, weights.shape[-1])
    places = torch.arange(weights.shape[-1], device=choice.device)
    sent = choice.unsqueeze(-1) == places  # (B, T, U, N, N): from k to i
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


def reference_window(x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    """The maximum (or minimum) of x (B, T) over the steps t + low to t + high that are in the row; T at least 1."""
    steps, outside = x.shape[1], torch.inf if minimum else -torch.inf
    padded = torch.nn.functional.pad(x, (max(0, -low), max(0, high)), value=outside)
    first = max(0, low)
    shifted = torch.stack([padded[:, first + k : first + k + steps] for k in range(high - low + 1)], -1)
    return shifted.amin(-1) if minimum else shifted.amax(-1)


def reference_latch(r: Tensor, s: Tensor, width: int) -> Tensor:
    """x_t: the loop x = max(min(r, x), s) over the last `width` steps, from -infinity; r, s (B, T)."""

    def ago(rows: Tensor, steps: int, outside: float) -> Tensor:
        return torch.nn.functional.pad(rows, (steps, 0), value=outside)[:, : rows.shape[1]]

    x = ago(s, width - 1, -torch.inf)
    for steps in reversed(range(width - 1)):
        x = torch.maximum(torch.minimum(ago(r, steps, torch.inf), x), ago(s, steps, -torch.inf))
    return x
