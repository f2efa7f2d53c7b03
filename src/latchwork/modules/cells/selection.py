"""Units that select: every place of a unit takes the level of one place, or its own of x0."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.modules.cells.choice import ChoiceCell
from latchwork.modules.cells.matrix import in_units
from latchwork.ops import minmax_scan
from latchwork.ops.choice import choose_rows
from latchwork.ops.moves import selection_as_minmax, selection_scan
from latchwork.ops.transforms import exporting


class SelectionCell(ChoiceCell):
    """The largest of n + 1 logits for each place i says what x[i] becomes: one of the unit's n levels, or x0[i]."""

    def __init__(self, size: int, degree: int, levels: int | None = None) -> None:
        super().__init__(size, degree, size * (degree + 1), levels)

    def forward(self, z: Tensor, x0: Tensor, state: Tensor | None = None, reset: Tensor | None = None) -> Tensor:
        """See Cell."""
        x0, state = in_units(x0, self.degree, 1), None if state is None else in_units(state, self.degree, 1)
        if exporting() or self.is_split(z):  # these know only the MinMax recurrence
            return minmax_scan(*self.as_minmax(z, x0), x0, state=state, reset=reset).flatten(2)
        weights, choice = choose_rows(*self.logits(z), temperature=self.temperature)
        return selection_scan(weights, choice, x0, s=x0, state=state, reset=reset).flatten(2)

    def as_minmax(self, z: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
        """r is the unit's largest level at what is taken, and its smallest elsewhere."""
        logits, own = self.logits(z)
        assert own is not None
        x0 = x0.view(-1, self.degree)
        choice = torch.cat([logits, own.unsqueeze(-1)], -1).argmax(-1)
        return selection_as_minmax(choice, x0, x0.amin(-1), x0.amax(-1), z.dtype)
