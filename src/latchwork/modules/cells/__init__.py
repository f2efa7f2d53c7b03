"""The kinds of state: one class each. A neuron is made of one or more of them."""

from latchwork.modules.cells.cell import Cell
from latchwork.modules.cells.choice import set_temperature
from latchwork.modules.cells.make import make_cells
from latchwork.modules.cells.matrix import MatrixCell
from latchwork.modules.cells.scalar import ScalarCell
from latchwork.modules.cells.selection import SelectionCell
from latchwork.modules.cells.transformation import TransformationCell

__all__ = ["Cell", "MatrixCell", "ScalarCell", "SelectionCell", "TransformationCell", "make_cells", "set_temperature"]
