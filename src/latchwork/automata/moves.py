"""How a drive moves the states of a block of units, each state being one of finitely many and so a small number.

A drive is a row of `project`'s z, an interval for each entry. What a run makes of it are a few numbers again, `chosen`;
where the interval leaves two of them possible, both are followed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch
from torch import Tensor

from latchwork.modules.choice import all_permutations
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.units import Units, round_to_levels

Array = numpy.ndarray
MOST_LEVELS = 256  # numbers of states are bytes


class TooUnsure(Exception):
    """Rounding may lead to more moves than are followed."""


class GridMoves:
    """Of plain units on a grid: a state's number is its level, and chosen are the levels of r and s."""

    def __init__(self, block: Units, double: Tensor, single: Tensor) -> None:
        assert block.levels is not None
        self.size, self.degree, self.levels = block.size, block.degree, block.levels
        self.width = self.entries = sum(block.widths)  # of the part of z, and of chosen
        self.grid = numpy.array([(2 * i - (self.levels - 1)) / (self.levels - 1) for i in range(self.levels)])
        self._starts = level(double, self.levels), level(single, self.levels)

    def sides(self, z: Tensor, radius: Tensor, unit: float) -> tuple[Array, Array]:
        """The two rows of what may be chosen, equal where it is sure."""
        lower, upper = possible_levels(z, radius, self.levels, unit)
        if (upper - lower).max(initial=0) > 1:
            raise TooUnsure("a drive may be off by more than a step of the grid: train with fewer levels")
        return lower, upper

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

    def __init__(self, block: Units, x0: Tensor) -> None:
        self.size, self.degree = block.size, block.degree
        self.width, self.entries, self.levels = sum(block.widths), block.size, block.degree
        self.x0 = x0.double().numpy()

    def sides(self, z: Tensor, radius: Tensor, unit: float) -> tuple[Array, Array]:
        """The two rows of what may be chosen, equal where it is sure."""
        return possible_choices(self._logits(z - radius), self._logits(z + radius))

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


class PermutationMoves(SelectionMoves):
    """Of units whose levels a permutation moves, that of the largest sum of logits; no row takes x0."""

    def sides(self, z: Tensor, radius: Tensor, unit: float) -> tuple[Array, Array]:
        """What is chosen, twice: it must be sure, for the rows of a permutation do not choose by themselves."""
        n = self.degree
        every = all_permutations(n)
        matrices = torch.nn.functional.one_hot(every, n).flatten(1).to(z)

        def sums(a: Tensor) -> Tensor:
            return a.to(z.dtype).reshape(len(z), -1, n * n) @ matrices.T

        off = sums(radius.expand_as(z)) + n * n * unit * sums(z.abs() + radius)  # of the logits; of adding them up
        middle = sums(z)
        possible = middle + off >= (middle - off).amax(-1, keepdim=True)
        if possible.sum(-1).max().item() > 1:
            raise TooUnsure("two permutations are so near to each other that rounding decides")
        choice = every[middle.argmax(-1)].flatten(1).numpy().astype(numpy.uint8)
        return choice, choice


class TransformationMoves:
    """Of units whose levels say where they go: a state's number is its place among 0 and the levels of its unit's x0.

    Numbers stand in the order of the levels, so that the largest of those that meet has the largest number.
    """

    def __init__(self, block: Units, x0: Tensor) -> None:
        self.size, self.degree = block.size, block.degree
        self.width, self.entries, self.levels = sum(block.widths), block.size, block.degree + 1
        units = x0.double().view(-1, block.degree)
        self.table = torch.cat([torch.zeros_like(units[:, :1]), units], -1).sort(-1).values.numpy()
        self._start = numpy.stack(
            [numpy.searchsorted(row, unit) for row, unit in zip(self.table, units.numpy(), strict=True)]
        )

    def sides(self, z: Tensor, radius: Tensor, unit: float) -> tuple[Array, Array]:
        """The two rows of what may be chosen, equal where it is sure."""
        shape = (len(z), self.size, self.degree)
        return possible_choices((z - radius).reshape(shape), (z + radius).reshape(shape))

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


Moves = GridMoves | SelectionMoves | PermutationMoves | TransformationMoves


def make_moves(double: MinMaxNeuron, single: MinMaxNeuron) -> list[Moves]:
    """Of each block of a neuron, given in float64 and float32."""
    sizes = [block.size for block in double.blocks]
    pieces = zip(
        double.blocks,
        double.x0.detach().split_with_sizes(sizes),
        single.x0.detach().split_with_sizes(sizes),
        single.start().detach().flatten().split_with_sizes(sizes),
        strict=True,
    )
    return [_make(block, wide, narrow, start) for block, wide, narrow, start in pieces]


def _make(block: Units, double: Tensor, single: Tensor, start: Tensor) -> Moves:
    if block.form == "free":
        return GridMoves(block, double, single)
    if block.form == "transformation":
        return TransformationMoves(block, start)
    return PermutationMoves(block, start) if block.form == "permutation" else SelectionMoves(block, start)


def why_not(blocks: Sequence[Units]) -> str | None:
    """Why these units cannot be followed, or None."""
    for block in blocks:
        if block.form == "free" and block.levels is None:
            return "the network has no levels: its states are not on a finite grid"
        if (block.levels or 0) > MOST_LEVELS or block.degree >= MOST_LEVELS:
            return f"the network has {block.levels or block.degree} levels: there may be at most {MOST_LEVELS}"
    return None


def possible_choices(low: Tensor, high: Tensor) -> tuple[Array, Array]:
    """Of logits from low to high (..., K) the first and the last that may be the largest."""
    possible = (high >= low.amax(-1, keepdim=True)).numpy()
    if possible.sum(-1).max(initial=0) > 2:
        raise TooUnsure("more than two choices of a row are so near to each other that rounding decides")
    first, last = possible.argmax(-1), low.shape[-1] - 1 - possible[..., ::-1].argmax(-1)
    return first.astype(numpy.uint8), last.astype(numpy.uint8)


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
