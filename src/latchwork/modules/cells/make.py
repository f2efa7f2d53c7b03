"""The cells of a neuron by the words of a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from latchwork.modules.cells.cell import Cell
from latchwork.modules.cells.matrix import MatrixCell
from latchwork.modules.cells.scalar import ScalarCell
from latchwork.modules.cells.selection import SelectionCell
from latchwork.modules.cells.transformation import TransformationCell

KINDS = {"free": MatrixCell, "selection": SelectionCell, "transformation": TransformationCell}


def make_cells(
    d_state: int,
    *,
    degree: int = 1,
    reset_form: str = "free",
    extra_units: Sequence[tuple[int, int]] = (),
    levels: int | None = None,
) -> list[Cell]:
    """d_state scalars, or units of `degree` of them, and the extra units (number, degree) beside them.

    The fields are those of MinMaxRNCConfig, which checks them.
    """
    kind = KINDS[reset_form]
    first: Cell = ScalarCell(d_state, levels) if degree == 1 else kind(d_state, degree, levels)
    return [first, *(kind(number * each, each, levels) for number, each in extra_units)]
