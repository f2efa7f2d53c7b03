"""How a drive moves the states of a cell, each state being one of finitely many and so a small number.

A drive is a row of `project`'s z, an interval for each entry. What a run makes of it are a few numbers again, `chosen`.
Where the interval leaves several of them possible, all are followed from each state that they move to different ones
(`decides`): a unit that holds one level at one place moves by the choice of that place alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy
import torch
from torch import Tensor, nn

from latchwork.modules.cells import MatrixCell, ScalarCell, SelectionCell, TransformationCell
from latchwork.modules.cells.cell import round_to_levels
from latchwork.modules.neuron import MinMaxNeuron

Array = numpy.ndarray
MOST_LEVELS = 256  # numbers of states are bytes


class TooUnsure(Exception):
    """Rounding may lead to more moves than are followed."""


class Choices(NamedTuple):
    """What rows of drives may choose: `first` (rows, entries), and where more is possible, each of `options` too.

    row, entry, option: of all that is possible where there are several, the first one among them.
    """

    first: Array
    row: Array
    entry: Array
    option: Array

    @staticmethod
    def of(possible: Array) -> Choices:
        """possible: (rows, entries, options), at least one of each entry's options."""
        several = possible & (possible.sum(-1, keepdims=True) > 1)
        return Choices(possible.argmax(-1).astype(numpy.uint8), *numpy.nonzero(several))


class GridMoves:
    """Of plain units on a grid: a state's number is its level, and chosen are the levels of r and s."""

    def __init__(self, cell: ScalarCell | MatrixCell, x0: Tensor, wide: Tensor, start: Tensor) -> None:
        assert cell.levels is not None
        self.size, self.degree, self.levels = cell.size, getattr(cell, "degree", 1), cell.levels
        self.width = self.entries = cell.width  # of the part of z, and of chosen
        self.grid = numpy.array([(2 * i - (self.levels - 1)) / (self.levels - 1) for i in range(self.levels)])
        self._starts = level(wide, self.levels), level(x0, self.levels)

    def choices(self, z: Tensor, radius: Tensor, unit: float) -> Choices:
        """What may be chosen."""
        lower, upper = possible_levels(z, radius, self.levels, unit)
        if (upper - lower).max(initial=0) > 1:
            raise TooUnsure("a drive may be off by more than a step of the grid")
        row, entry = numpy.nonzero(lower != upper)
        both = numpy.stack([lower[row, entry], upper[row, entry]], 1).flatten()
        return Choices(lower, row.repeat(2), entry.repeat(2), both)

    def decides(self, entry: int, options: Array, x: Array) -> Array:
        """Of states x (rows, size), whether it depends on which of the options is chosen where they move."""
        if entry >= self.size * self.degree:  # s
            return numpy.ones(len(x), bool)
        row, column = divmod(entry, self.degree)
        found: Array = x[:, row // self.degree * self.degree + column] > options.min()  # what min(r, x) differs for
        return found

    def recur(self, chosen: Array, x: Array) -> Array:
        """The states that follow x."""
        n = self.degree
        r, s = chosen[:, : self.size * n], chosen[:, self.size * n :]
        if n == 1:
            kept = numpy.minimum(r, x)
        else:
            kept = numpy.minimum(r.reshape(len(x), -1, n, n), x.reshape(len(x), -1, 1, n)).max(-1).reshape(x.shape)
        after: Array = numpy.maximum(kept, s)
        return after

    def values(self, x: Array) -> Array:
        """What the states are."""
        values: Array = self.grid[x]
        return values

    def start(self) -> Array:
        """The states before the first step."""
        levels, single = self._starts
        if (levels != single).any():
            raise TooUnsure("x0 is so near to a boundary of the grid that float32 and float64 round it to other levels")
        return levels


class SelectionMoves:
    """Of units that select whole levels: a state's number says which entry of its unit's x0 it is.

    Chosen is for each row which entry of the state it takes, or, by the number after the last, its own of x0. The
    largest logit decides, as it was computed: so nothing is rounded but the logits.
    """

    def __init__(self, cell: SelectionCell, x0: Tensor, wide: Tensor, start: Tensor) -> None:
        self.size, self.degree = cell.size, cell.degree
        self.width, self.entries, self.levels = cell.width, cell.size, cell.degree
        self.x0 = start.double().numpy()

    def choices(self, z: Tensor, radius: Tensor, unit: float) -> Choices:
        """What may be chosen."""
        return Choices.of(possible_choices(self._logits(z - radius), self._logits(z + radius)))

    def decides(self, entry: int, options: Array, x: Array) -> Array:
        """Of states x (rows, size), whether it depends on which of the options is chosen where they move."""
        n = self.degree
        taken = x[:, entry // n * n + numpy.minimum(options, n - 1)]
        taken = numpy.where(options == n, entry % n, taken)
        found: Array = (taken != taken[:, :1]).any(1)
        return found

    def _logits(self, z: Tensor) -> Tensor:
        """(rows, size, degree + 1), those of taking x0 last."""
        logits, take = z.split_with_sizes([self.size * self.degree, self.size], dim=-1)
        return torch.cat([logits.reshape(len(z), self.size, self.degree), take.unsqueeze(-1)], -1)

    def recur(self, chosen: Array, x: Array) -> Array:
        """The states that follow x."""
        n = self.degree
        units, choice = x.reshape(len(x), -1, n), chosen.reshape(len(x), -1, n)
        taken = numpy.take_along_axis(units, numpy.minimum(choice, n - 1).astype(numpy.int64), -1)
        after: Array = numpy.where(choice == n, numpy.arange(n, dtype=x.dtype), taken).reshape(x.shape)
        return after

    def values(self, x: Array) -> Array:
        """What the states are."""
        unit = numpy.arange(self.size) // self.degree * self.degree
        values: Array = self.x0[unit + x]
        return values

    def start(self) -> Array:
        """The states before the first step: every entry its own."""
        return (numpy.arange(self.size) % self.degree).astype(numpy.uint8)


class TransformationMoves:
    """Of units whose levels say where they go: a state's number is its place among 0 and the levels of its unit's x0.

    Numbers stand in the order of the levels, so that the largest of those that meet has the largest number.
    """

    def __init__(self, cell: TransformationCell, x0: Tensor, wide: Tensor, start: Tensor) -> None:
        self.size, self.degree = cell.size, cell.degree
        self.width, self.entries, self.levels = cell.width, cell.size, cell.degree + 1
        units = start.double().view(-1, cell.degree)
        self.table = torch.cat([torch.zeros_like(units[:, :1]), units], -1).sort(-1).values.numpy()
        self._start = numpy.stack(
            [numpy.searchsorted(row, unit) for row, unit in zip(self.table, units.numpy(), strict=True)]
        )

    def choices(self, z: Tensor, radius: Tensor, unit: float) -> Choices:
        """What may be chosen."""
        shape = (len(z), self.size, self.degree)
        return Choices.of(possible_choices((z - radius).reshape(shape), (z + radius).reshape(shape)))

    def decides(self, entry: int, options: Array, x: Array) -> Array:
        """Of states x (rows, size), whether it depends on which of the options is chosen where they move.

        Where 0 goes makes no difference: the largest of what meets stays, and what none goes to is 0.
        """
        found: Array = x[:, entry] > 0
        return found

    def recur(self, chosen: Array, x: Array) -> Array:
        """The states that follow x."""
        n = self.degree
        units, choice = x.reshape(len(x), -1, n, 1), chosen.reshape(len(x), -1, n, 1)
        arrived = numpy.where(choice == numpy.arange(n), units, units.dtype.type(0))
        after: Array = arrived.max(-2).reshape(x.shape)
        return after

    def values(self, x: Array) -> Array:
        """What the states are."""
        values: Array = self.table[numpy.arange(self.size) // self.degree, x]
        return values

    def start(self) -> Array:
        """The states before the first step."""
        return self._start.astype(numpy.uint8).flatten()


Moves = GridMoves | SelectionMoves | TransformationMoves
KINDS: dict[type[nn.Module], Callable[..., Moves]] = {  # cells of other kinds cannot be followed
    ScalarCell: GridMoves,
    MatrixCell: GridMoves,
    SelectionCell: SelectionMoves,
    TransformationCell: TransformationMoves,
}


def make_moves(double: MinMaxNeuron, single: MinMaxNeuron, run: MinMaxNeuron) -> list[Moves]:
    """Of each cell of a neuron, given in float64 and float32. run: the one of both whose runs are meant."""
    tensors = (single.x0.detach(), double.x0.detach(), run.start().detach())
    parts = zip(single.cells, *(each.split_with_sizes(single.sizes) for each in tensors), strict=True)
    return [KINDS[type(cell)](cell, *starts) for cell, *starts in parts]


def why_not(cells: Iterable[nn.Module]) -> str | None:
    """Why these cells cannot be followed, or None."""
    for cell in cells:
        if type(cell) not in KINDS:
            return f"the network has a {type(cell).__name__}, of which there are no bounds"
        levels, degree = getattr(cell, "levels", None), getattr(cell, "degree", 1)
        if KINDS[type(cell)] is GridMoves and levels is None:
            return "the network has no levels: its states are not on a finite grid"
        if (levels or 0) > MOST_LEVELS or degree >= MOST_LEVELS:
            return f"the network has {levels or degree} levels: there may be at most {MOST_LEVELS}"
    return None


def possible_choices(low: Tensor, high: Tensor) -> Array:
    """Of logits from low to high (..., K), whether each may be the largest."""
    possible: Array = (high >= low.amax(-1, keepdim=True)).numpy()
    return possible


def level(z: Tensor, levels: int) -> Array:
    """The number of each entry's level, as the network rounds it: 0 the lowest."""
    values = round_to_levels(z, levels)
    numbers: Array = ((values + 1) * ((levels - 1) / 2)).round().to(torch.uint8).numpy()
    return numbers


def possible_levels(z: Tensor, radius: Tensor, levels: int, unit: float) -> tuple[Array, Array]:
    """The lowest and the highest level of any run whose entries are within radius of z.

    Where a drive is put on the grid it is rounded twice more: 1 + z, at most 2, and its product with the levels. That
    is 3 unit as seen from z; the fourth is for z + radius here.
    """
    off = radius + 4 * unit
    return level(z - off, levels), level(z + off, levels)
