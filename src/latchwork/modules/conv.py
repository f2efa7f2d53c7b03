"""The short memory of one step: a map of the input now and the input one step before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latchwork.modules.init import small_init_init_
from latchwork.ops import distributed
from latchwork.ops.matvec import linear


def shift(u: Tensor, first: Tensor | None, reset: Tensor | None) -> Tensor:
    """u (B, T, d) one step later: out[t] = u[t-1], and out[0] = first (B, d), or 0. Where reset (B, T), out is 0."""
    start = torch.zeros_like(u[:, :1]) if first is None else first.to(u.dtype).unsqueeze(1)
    previous = start if u.shape[1] == 1 else torch.cat((start, u), 1)[:, :-1]
    return previous if reset is None else previous.masked_fill(reset.unsqueeze(-1), 0)


def last_input(u: Tensor, state: Tensor | None) -> Tensor:
    """The input that the next call sees as the one before: u[:, -1], or the state if u has no steps."""
    if u.shape[1]:
        return u[:, -1]
    return u.new_zeros(u.shape[0], u.shape[2]) if state is None else state


def edges(u: Tensor, state: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """The input before u (B, T, d), None for 0, and the last input. state: the input before the sequence, None for 0.

    Within `context_parallel` u is a slice of the sequence: the first comes from the slice before, the last is that of
    all slices.
    """
    if not distributed.is_split():
        return state, last_input(u, state)
    return distributed.edges(u, u.new_zeros(u.shape[0], u.shape[2]) if state is None else state)


class BasicConv(nn.Module):
    """y_t = W [u_{t-1}, u_t] + b."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, 2 * d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        small_init_init_(self.weight, 2 * d_model)

    def forward(self, u: Tensor, state: Tensor | None = None, *, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """u (B, T, d_model), state (B, d_model): the input before u. Returns y like u, and the last input."""
        then, now = self.weight.chunk(2, dim=1)  # two products, and no copy of the pair side by side
        before, last = edges(u, state)
        return linear(u, now, self.bias) + linear(shift(u, before, reset), then), last


class GatedConv(nn.Module):
    """y_t = sigmoid(g) u_{t-1} + (1 - sigmoid(g)) u_t, with one g for each dimension."""

    def __init__(self, d_model: int, init_val: float = 0.0) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.full((d_model,), float(init_val)))

    def forward(self, u: Tensor, state: Tensor | None = None, *, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """u (B, T, d_model), state (B, d_model): the input before u. Returns y like u, and the last input."""
        before, last = edges(u, state)
        return torch.lerp(u, shift(u, before, reset), torch.sigmoid(self.g).to(u.dtype)), last
