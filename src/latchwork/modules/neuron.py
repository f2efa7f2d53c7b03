"""The recurrent cell: projections of the input, the recurrence, the output gate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latchwork.modules.init import kaiming_init_, levels_init_, permutation_init_, small_init_init_, wang_init_
from latchwork.modules.linear import Linear
from latchwork.ops import minmax_scan, minmax_step


def round_to_levels(values: Tensor, levels: int) -> Tensor:
    """values at the nearest of `levels` evenly spaced points from -1 to 1; the gradient goes straight through.

    >>> round_to_levels(torch.tensor([-3.0, -0.4, 0.1, 0.7]), 3)
    tensor([-1.,  0.,  0.,  1.])
    """
    exact = values.detach().to(torch.promote_types(values.dtype, torch.float32))
    number = ((exact.clamp(-1, 1) + 1) * ((levels - 1) / 2)).round()
    rounded = ((2 * number - (levels - 1)) / (levels - 1)).to(values.dtype)
    return rounded + (values - values.detach()).nan_to_num(nan=0.0)  # what is added is 0 and carries the gradient


S_R_INITS = ("small_init", "kaiming", "asymmetric")


class MinMaxNeuron(nn.Module):
    """y = W_o (x * sigmoid(W_g u)), with x_t = max(min(r_t, x_{t-1}), s_t), r = W_r u + b_r, s = W_s u + b_s.

    d_state: the number of state scalars. degree n: they form d_state / n units, and r is n x n for each.
    levels: round r, s and x0 to that many levels in [-1, 1], so that the states live on a finite grid.
    output_gate: without it, y = W_o x. train_init: learn x0. dropout: of the input. s_r_init: "small_init", "kaiming"
    or "asymmetric" (modules/init.py). For degree > 1 it initialises s alone, one below what it is for degree one;
    R then starts between two permutations (`permutation_init_`) and x0 at distinct levels.
    n_layers: of the cascade this neuron is part of, for the initial scale of W_o.

    r, s and the gate are rows of one matrix, `projection`, in this order, so that they are one product.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        degree: int = 1,
        levels: int | None = None,
        output_gate: bool = True,
        train_init: bool = False,
        dropout: float = 0.0,
        s_r_init: str = "small_init",
        n_layers: int = 1,
    ) -> None:
        super().__init__()
        if s_r_init not in S_R_INITS:
            raise ValueError(f"s_r_init must be one of {', '.join(S_R_INITS)}; got {s_r_init!r}")
        if degree < 1 or d_state % degree:
            raise ValueError(
                f"d_state must be a multiple of degree, at least 1; got d_state {d_state}, degree {degree}"
            )
        if levels is not None and levels < 2:
            raise ValueError(f"levels must be at least 2, or None; got {levels}")
        self.d_model, self.d_state, self.degree, self.levels = d_model, d_state, degree, levels
        self.output_gate = output_gate
        self.backend = "auto"  # of minmax_scan
        self.widths = [d_state * degree, d_state] + [d_state] * output_gate
        self.dropout = nn.Dropout(dropout)
        self.projection = Linear(d_model, sum(self.widths))
        self.output = Linear(d_state, d_model)
        x0 = torch.zeros(d_state)
        if train_init:
            self.x0 = nn.Parameter(x0)
        else:
            self.register_buffer("x0", x0)
        self._initialise(s_r_init, n_layers)

    def _initialise(self, s_r_init: str, n_layers: int) -> None:
        weight, bias = self.projection.weight.detach(), self.projection.bias.detach()
        weight_r, weight_s, *weight_gate = weight.split_with_sizes(self.widths)
        bias_r, bias_s, *_ = bias.split_with_sizes(self.widths)
        nn.init.zeros_(bias)
        for each in (weight_r, weight_s, *weight_gate):
            small_init_init_(each, self.d_model)
        if s_r_init == "kaiming":
            kaiming_init_(weight_r)
        if s_r_init in ("kaiming", "asymmetric"):
            kaiming_init_(weight_s)
        if s_r_init == "asymmetric":
            bias_s.fill_(1.0)
        if self.degree > 1:
            n = self.degree
            permutation_init_(weight_r.view(-1, n, n, self.d_model), bias_r.view(-1, n, n))
            bias_s.sub_(1.0)
            levels_init_(self.x0.detach().view(-1, n))
        wang_init_(self.output.weight, self.d_state, n_layers)
        nn.init.zeros_(self.output.bias)

    def project(self, u: Tensor) -> Tensor:
        """r, s and the gate's logits side by side, for u (..., d_model)."""
        z: Tensor = self.projection(self.dropout(u))
        return z

    def signals(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """r, s and the gate's logits, or None, out of `project`'s z: (..., D), or (..., U, N, N) and (..., U, N)."""
        r, s, *gate = z.split_with_sizes(self.widths, dim=-1)
        if self.levels is not None:
            r, s = round_to_levels(r, self.levels), round_to_levels(s, self.levels)
        if self.degree > 1:
            units = self.d_state // self.degree
            r, s = r.view(*r.shape[:-1], units, self.degree, self.degree), s.view(*s.shape[:-1], units, self.degree)
        return r, s, gate[0] if gate else None

    def start(self) -> Tensor:
        """x0 as the recurrence sees it: on the grid if there is one; (D,), or (U, N)."""
        x0 = self.x0 if self.levels is None else round_to_levels(self.x0, self.levels)
        return x0 if self.degree == 1 else x0.view(-1, self.degree)

    def states(self, z: Tensor, x: Tensor | None = None, *, reset: Tensor | None = None) -> Tensor:
        """Every state (B, T, d_state) from `project`'s z (B, T, ...), x (B, d_state) being the state before."""
        r, s, _ = self.signals(z)
        x0 = self.start().to(z.dtype)
        state = None if x is None else x.to(z.dtype).view(x.shape[0], *x0.shape)
        if z.shape[1] == 1:
            before = x0.expand(z.shape[0], *x0.shape) if state is None else state
            if reset is not None:
                before = torch.where(reset.view(-1, *[1] * x0.dim()), x0, before)
            return minmax_step(r[:, 0], s[:, 0], before).view(z.shape[0], 1, self.d_state)
        return minmax_scan(r, s, x0, state=state, reset=reset, backend=self.backend).flatten(2)

    def recur(self, z: Tensor, x: Tensor | None = None, *, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The rest of `forward` after `project`."""
        states = self.states(z, x, reset=reset)
        if z.shape[1]:
            last = states[:, -1]
        else:
            last = self.start().to(z.dtype).flatten().expand(z.shape[0], -1) if x is None else x
        if self.output_gate:
            states = states * torch.sigmoid(z[..., -self.d_state :])
        return self.output(states), last

    def forward(self, u: Tensor, state: Tensor | None = None, *, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """u (B, T, d_model), state (B, d_state). Returns y like u, and the last state."""
        return self.recur(self.project(u), state, reset=reset)
