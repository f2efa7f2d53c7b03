"""A layer whose states are on a grid: what it does at every pair of inputs that comes up."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from latchwork.automata import bounds
from latchwork.automata.rows import Rows
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import round_to_levels

Array = numpy.ndarray
ROWS = 4096  # rows evaluated at once
MOST_SIDES = 64  # ways to round one drive that are followed
ENTRY = 256  # bytes of an entry of a dictionary, about


class GridLayer:
    """A layer in float64, and what it does at every pair of inputs that has come up, each computed once.

    single: the layer in float32, to compare. unit: of the runs that are meant (automata/bounds.py). tolerance: how much
    further than that a drive may be off. max_bytes: of its tables; beyond it TooLarge is raised.
    """

    def __init__(
        self, layer: MinMaxLayer, single: MinMaxLayer, levels: int, unit: float, tolerance: float, max_bytes: int
    ) -> None:
        self.layer, self.single, self.levels, self.unit, self.tolerance = layer, single, levels, unit, tolerance
        self.max_bytes = max_bytes
        neuron = layer.neuron
        self.d_state, self.degree, self.gated = neuron.d_state, neuron.degree, neuron.output_gate
        self.r_width = neuron.d_state * neuron.degree
        self.grid = numpy.array([(2 * i - (levels - 1)) / (levels - 1) for i in range(levels)])
        self.u, self.radius = Rows(neuron.d_model), Rows(1)  # inputs by number
        self.small = Rows(neuron.d_model, numpy.float32)  # the same inputs as float32 computes them
        self.first: dict[int, tuple[int, int]] = {}  # pair -> its first row below, and how many it has
        self.r, self.s = Rows(self.r_width, numpy.uint8), Rows(neuron.d_state, numpy.uint8)
        gates = neuron.d_state if self.gated else 0
        self.gate, self.gate_radius, self.now = Rows(gates), Rows(gates), Rows(1, numpy.int64)
        self.both_sides = 0
        self.bound = self.seen_error = 0.0
        nothing = torch.zeros(1, neuron.d_model)
        self.add_inputs(bounds.Bounded.exact(nothing, unit), nothing)  # number 0: none, before the first step

    def add_inputs(self, u: bounds.Bounded, small: Tensor) -> None:
        """Some more inputs, which get the next numbers. small: as float32 computes them."""
        self.u.add(u.value.numpy())
        self.radius.add(u.radius.numpy())
        self.small.add(small.numpy())

    def check_size(self) -> None:
        """Raise TooLarge if the tables are."""
        tables = (self.u, self.radius, self.small, self.r, self.s, self.gate, self.gate_radius, self.now)
        size = sum(each.nbytes for each in tables) + ENTRY * (len(self.u) + len(self.first))
        if size > self.max_bytes:
            raise TooLarge(
                f"a layer's tables, of {len(self.u) - 1:,} inputs and {len(self.first):,} pairs of them so far, take "
                f"{size:,} bytes: allow more by max_bytes, which is {self.max_bytes:,}, or train with fewer levels"
            )

    def drives(self, before: Array, now: Array) -> tuple[Array, Array]:
        """For pairs of inputs, by number: the first row of r, s, gate and now, and how many rows there are."""
        keys, places = numpy.unique(before.astype(numpy.int64) << 32 | now, return_inverse=True)
        missing = [key for key in keys.tolist() if key not in self.first]
        for start in range(0, len(missing), ROWS):
            self._compute(missing[start : start + ROWS])
        found = numpy.array([self.first[key] for key in keys.tolist()])
        return found[places, 0], found[places, 1]

    def _compute(self, keys: list[int]) -> None:
        before, now = numpy.array(keys) >> 32, numpy.array(keys) & 0xFFFFFFFF
        u, last = (self._bounded(each) for each in (now, before))
        previous = bounds.normalise(self.layer.norm_conv, last)
        none = torch.from_numpy(before == 0)[:, None]
        value, off = (each.masked_fill(none, 0) for each in previous[:2])
        previous = bounds.Bounded(value, off, self.unit)
        z, radius = bounds.drive(self.layer, u, previous)
        self.bound = max(self.bound, float(radius.max()))
        self._compare(z, now, before)
        r_width, both = self.r_width, self.r_width + self.d_state
        lower, upper = possible_levels(z[:, :both], radius[:, :both] + self.tolerance, self.levels, self.unit)
        unsure = lower != upper
        if (upper - lower).max() > 1:
            raise TooUnsure("a drive may be off by more than a step of the grid: train with fewer levels")
        entries = unsure.sum(1)
        if 2 ** int(entries.max()) > MOST_SIDES:
            raise TooUnsure(f"rounding may take {entries.max()} entries of one drive across a boundary at once")
        self.both_sides += int(entries.sum())
        counts = 2**entries
        ends = len(self.r) + numpy.cumsum(counts)
        self.first.update(zip(keys, zip((ends - counts).tolist(), counts.tolist(), strict=True), strict=True))
        again = numpy.repeat(numpy.arange(len(keys)), counts)
        side = numpy.arange(len(again)) - numpy.repeat(ends - counts - len(self.r), counts)
        bit = numpy.maximum(unsure.cumsum(1)[again] - 1, 0)  # the k-th unsure entry takes its side by the k-th bit
        chosen = numpy.where(unsure[again] & (side[:, None] >> bit & 1 == 1), upper[again], lower[again])
        self.r.add(chosen[:, :r_width])
        self.s.add(chosen[:, r_width:])
        self.gate.add(z[:, both:].numpy()[again])
        self.gate_radius.add(radius[:, both:].numpy()[again])
        self.now.add(now[again, None])
        self.check_size()

    def _bounded(self, numbers: Array) -> bounds.Bounded:
        return bounds.Bounded(torch.from_numpy(self.u[numbers]), torch.from_numpy(self.radius[numbers]), self.unit)

    def _compare(self, z: Tensor, now: Array, before: Array) -> None:
        """How far the layer's own parts, in float32 and in one batch, are off: an observation, not a bound."""
        u, last = (torch.from_numpy(self.small[each]) for each in (now, before))
        previous = self.single.norm_conv(last).masked_fill(torch.from_numpy(before == 0)[:, None], 0)
        found = self.single.drive(u, self.single.norm_conv(u), previous)
        self.seen_error = max(self.seen_error, float((found.double() - z).abs().max()))

    def source(self, rows: Array) -> Array:
        """What, with the states, the output at rows of `drives` depends on: the row, or without a gate the input."""
        found: Array = rows if self.gated else self.now[rows][:, 0]
        return found

    def recur(self, rows: Array, x: Array) -> Array:
        """The states that follow x at rows of `drives`, all as levels."""
        r, n = self.r[rows], self.degree
        if n == 1:
            kept = numpy.minimum(r, x)
        else:
            units = x.reshape(len(x), -1, 1, n)
            kept = numpy.minimum(r.reshape(len(x), -1, n, n), units).max(-1).reshape(x.shape)
        after: Array = numpy.maximum(kept, self.s[rows])
        return after

    def outputs(self, rows: Array, x: Array) -> bounds.Bounded:
        """The layer's output at rows of `drives` with states x (as levels) after the step."""
        gate = torch.from_numpy(self.gate[rows]), torch.from_numpy(self.gate_radius[rows])
        return bounds.respond(self.layer, self._bounded(self.now[rows][:, 0]), gate, torch.from_numpy(self.grid[x]))

    def small_outputs(self, rows: Array, x: Array) -> Tensor:
        """The same as float32 computes it, in one batch."""
        now, neuron = self.now[rows][:, 0], self.single.neuron
        states = torch.from_numpy(self.grid[x]).float()
        if self.gated:
            states = states * torch.from_numpy(self.gate[rows]).float().sigmoid()
        small: Tensor = torch.from_numpy(self.small[now]) + neuron.output(states)
        return small

    def start(self) -> Array:
        """The levels of the state before the first step."""
        levels, single = (level(each.neuron.x0.detach(), self.levels) for each in (self.layer, self.single))
        if (levels != single).any():
            raise TooUnsure("x0 is so near to a boundary of the grid that float32 and float64 round it to other levels")
        return levels


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


class TooUnsure(Exception):
    """Rounding may lead to more levels than are followed."""


class TooLarge(Exception):
    """The tables would take more memory than is allowed."""
