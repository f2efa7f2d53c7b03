"""The base of cells that move whole levels: logits that choose, and the temperature of their gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latchwork.modules.cells.cell import Cell
from latchwork.modules.cells.matrix import check_units, in_units
from latchwork.modules.init import choice_init_, levels_init_
from latchwork.ops import distributed


class ChoiceCell(Cell):
    """Units of `degree` scalars. A step moves whole levels and never mixes them.

    Logits choose the move, and the largest wins. The gradient is a surrogate, that of their softmax (ops/moves.py).
    levels: round x0 to that many levels. temperature: of the softmax in the gradient; see `set_temperature`.
    """

    lowest = -1.0  # of the levels in x0, the highest being 1

    def __init__(self, size: int, degree: int, width: int, levels: int | None = None) -> None:
        super().__init__(size, width, levels)
        check_units(size, degree)
        self.degree, self.temperature = degree, 1.0

    def init_(self, weight: Tensor, bias: Tensor, x0: Tensor, s_r_init: str) -> None:
        """Nearly equal logits and distinct levels; s_r_init is not used."""
        choice_init_(weight, weight.shape[1])
        levels_init_(x0.view(-1, self.degree), lowest=self.lowest)

    def is_split(self, z: Tensor) -> bool:
        """Whether z is a slice of longer sequences, which these cells can be evaluated on but not trained."""
        if distributed.is_split() and torch.is_grad_enabled() and z.requires_grad:
            distributed.refuse(f"the surrogate gradient of {type(self).__name__}")
        return distributed.is_split()

    def logits(self, z: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits (..., U, N, N) in z (..., width), and those of taking x0 (..., U, N), or None."""
        rows = self.size * self.degree
        own = None if self.width == rows else in_units(z[..., rows:], self.degree, 1)
        return in_units(z[..., :rows], self.degree, 2), own


def set_temperature(model: nn.Module, temperature: float) -> None:
    """Set the temperature of the surrogate gradient of every cell that moves whole levels; 1 is the default.

    The gradient is that of a softmax of the logits. It vanishes where the choice has become sure, right or wrong. A
    higher temperature keeps it alive. No output depends on it.
    """
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite; got {temperature}")
    for module in model.modules():
        if isinstance(module, ChoiceCell):
            module.temperature = temperature
