"""The definition: a loop over time, differentiated by autograd. Every other backend equals it."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops.algebra import apply


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
