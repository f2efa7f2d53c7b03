"""Scalars: the paper's latches."""

from __future__ import annotations

from torch import Tensor

from latchwork.modules.cells.cell import Cell, round_to_levels
from latchwork.modules.init import kaiming_init_, spread_init_
from latchwork.ops import minmax_scan


class ScalarCell(Cell):
    """x_t = max(min(r_t, x_{t-1}), s_t), each scalar by itself; z is [r, s].

    levels: round r, s and x0 to that many levels in [-1, 1], so that the states live on a finite grid.
    """

    def __init__(self, size: int, levels: int | None = None) -> None:
        super().__init__(size, 2 * size, levels)

    def init_(self, weight: Tensor, bias: Tensor, x0: Tensor, s_r_init: str) -> None:
        """By name: "small_init", "kaiming", "asymmetric" or "spread" (modules/init.py)."""
        (weight_r, weight_s), (bias_r, bias_s) = weight.chunk(2), bias.chunk(2)
        if s_r_init == "kaiming":
            kaiming_init_(weight_r)
        if s_r_init in ("kaiming", "asymmetric"):
            kaiming_init_(weight_s)
        if s_r_init == "asymmetric":
            bias_s.fill_(1.0)
        if s_r_init == "spread":
            spread_init_(bias_r, bias_s)

    def forward(self, z: Tensor, x0: Tensor, state: Tensor | None = None, reset: Tensor | None = None) -> Tensor:
        """See Cell."""
        return minmax_scan(*self.as_minmax(z, x0), x0, state=state, reset=reset)

    def as_minmax(self, z: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
        """r and s as they drive the states."""
        z = z if self.levels is None else round_to_levels(z, self.levels)
        return z[..., : self.size], z[..., self.size :]
