"""The recurrent neuron: projections of the input, cells that hold the state, the output gate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from latchwork.modules.cells import Cell, ScalarCell
from latchwork.modules.init import S_R_INITS, small_init_init_, wang_init_
from latchwork.modules.linear import Linear
from latchwork.modules.sequences import at_step
from latchwork.ops import distributed


class MinMaxNeuron(nn.Module):
    """y = W_o (x * sigmoid(W_g u)), with x_t = max(min(r_t, x_{t-1}), s_t), r = W_r u + b_r, s = W_s u + b_s.

    cells: the number of state scalars, as in the paper, or the cells that hold the state (modules/cells). output_gate:
    without it, y = W_o x. train_init: learn x0. dropout: of the input. s_r_init: how r and s start, "small_init",
    "kaiming", "asymmetric" or "spread" (modules/init.py). n_layers: of the cascade this neuron is part of, for the
    initial scale of W_o.

    The drives of all cells and the gate are rows of one matrix, `projection`, so that they are one product.

    >>> neuron = MinMaxNeuron(16, 8)
    >>> y, state = neuron(torch.zeros(3, 10, 16))
    >>> y.shape, state.shape
    (torch.Size([3, 10, 16]), torch.Size([3, 8]))
    """

    def __init__(
        self,
        d_model: int,
        cells: int | Sequence[Cell],
        *,
        output_gate: bool = True,
        train_init: bool = False,
        dropout: float = 0.0,
        s_r_init: str = "small_init",
        n_layers: int = 1,
    ) -> None:
        super().__init__()
        if s_r_init not in S_R_INITS:
            raise ValueError(f"s_r_init must be one of {', '.join(S_R_INITS)}; got {s_r_init!r}")
        self.cells = nn.ModuleList([ScalarCell(cells)] if isinstance(cells, int) else cells)
        self.sizes: list[int] = [cell.size for cell in self.cells]  # type: ignore[misc]
        self.widths: list[int] = [cell.width for cell in self.cells]  # type: ignore[misc]
        self.d_model, self.d_state, self.output_gate = d_model, sum(self.sizes), output_gate
        if output_gate:
            self.widths.append(self.d_state)
        self.dropout = nn.Dropout(dropout)
        self.projection = Linear(d_model, sum(self.widths))
        self.output = Linear(self.d_state, d_model)
        if train_init:
            self.x0 = nn.Parameter(torch.zeros(self.d_state))
        else:
            self.register_buffer("x0", torch.zeros(self.d_state))
        small_init_init_(self.projection.weight, d_model)
        nn.init.zeros_(self.projection.bias)
        with torch.no_grad():
            weights, biases = (
                self.projection.weight.split_with_sizes(self.widths),
                self.projection.bias.split_with_sizes(self.widths),
            )
            for cell, *parts in zip(self.cells, weights, biases, self.x0.split_with_sizes(self.sizes), strict=False):
                cell.init_(*parts, s_r_init)  # type: ignore[operator]
        wang_init_(self.output.weight, self.d_state, n_layers)
        nn.init.zeros_(self.output.bias)

    def start(self) -> Tensor:
        """x0 (d_state,) as the recurrence sees it."""
        parts = [cell.start(x0) for cell, x0 in zip(self.cells, self.x0.split_with_sizes(self.sizes), strict=True)]  # type: ignore[operator]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def project(self, u: Tensor) -> Tensor:
        """What drives the cells, and the gate's logits, side by side, for u (..., d_model)."""
        z: Tensor = self.projection(self.dropout(u))
        return z

    def respond(
        self, z: Tensor, state: Tensor | None = None, reset: Tensor | None = None, last: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The rest of `forward`, after `project`."""
        x0 = self.start().to(z.dtype)
        state = None if state is None else state.to(z.dtype)
        befores = [None] * len(self.cells) if state is None else state.split_with_sizes(self.sizes, -1)
        drives = z.split_with_sizes(self.widths, -1)
        starts = x0.split_with_sizes(self.sizes)
        parts = [
            cell(drive, start, before, reset)
            for cell, drive, start, before in zip(self.cells, drives[: len(starts)], starts, befores, strict=True)
        ]
        states = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        before = x0.expand(z.shape[0], -1) if state is None else state
        after = at_step(states, last) if z.shape[1] else before
        if distributed.is_split():  # the last state of all slices
            after = distributed.edges(states.detach(), before)[1]
        if self.output_gate:
            states = states * torch.sigmoid(drives[-1])
        return self.output(states), after

    def forward(
        self,
        u: Tensor,
        state: Tensor | None = None,
        *,
        reset: Tensor | None = None,
        last: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """u (B, T, d_model), state (B, d_state). Returns y like u, and the last state.

        last: (B,), the step after which each row's state is returned; None is the last of all.
        """
        return self.respond(self.project(u), state, reset, last)
