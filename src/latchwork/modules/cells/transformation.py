"""Units that send: every level of a unit goes to one place, and where several meet the largest stays."""

from __future__ import annotations

from torch import Tensor

from latchwork.modules.cells.choice import ChoiceCell
from latchwork.modules.cells.matrix import in_units
from latchwork.ops import minmax_scan
from latchwork.ops.choice import choose_rows
from latchwork.ops.moves import transformation_as_minmax, transformation_scan
from latchwork.ops.transforms import exporting


class TransformationCell(ChoiceCell):
    """The largest of n logits for each level says where it goes; a place to which none goes becomes 0.

    The levels are from 0 to 1. One unit can be any map of its n places into themselves: permutation, reset, and all
    between.
    """

    lowest = 0.0

    def __init__(self, size: int, degree: int, levels: int | None = None) -> None:
        super().__init__(size, degree, size * degree, levels)

    def start(self, x0: Tensor) -> Tensor:
        """x0, on the grid if there is one, and not below 0."""
        return super().start(x0).clamp(min=0)

    def forward(self, z: Tensor, x0: Tensor, state: Tensor | None = None, reset: Tensor | None = None) -> Tensor:
        """See Cell."""
        x0, state = in_units(x0, self.degree, 1), None if state is None else in_units(state, self.degree, 1)
        if exporting() or self.is_split(z):  # these know only the MinMax recurrence
            return minmax_scan(*self.as_minmax(z, x0), x0, state=state, reset=reset).flatten(2)
        weights, choice = choose_rows(*self.logits(z), temperature=self.temperature)
        state = None if state is None else state.clamp(min=0)  # as the step itself does with what is below
        return transformation_scan(weights, choice, x0, state=state, reset=reset).flatten(2)

    def as_minmax(self, z: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
        """r is the unit's largest level where a level is sent, and 0 elsewhere; s is 0."""
        return transformation_as_minmax(self.logits(z)[0].argmax(-1), x0.view(-1, self.degree).amax(-1), z.dtype)
