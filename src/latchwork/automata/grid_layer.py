"""A layer whose states are on a grid: what it does at every pair of inputs that comes up."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy
import torch
from torch import Tensor

from latchwork.automata import bounds
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import round_to_levels

Array = numpy.ndarray
ROWS = 4096  # rows evaluated at once
MOST_SIDES = 64  # ways to round one drive that are followed


class GridLayer:
    """A layer in float64, and what it does at every pair of inputs that has come up, each computed once."""

    def __init__(self, layer: MinMaxLayer, single: MinMaxLayer, levels: int, tolerance: float) -> None:
        self.layer, self.single, self.levels, self.tolerance = layer, single, levels, tolerance
        neuron = layer.neuron
        self.d_state, self.degree, self.gated = neuron.d_state, neuron.degree, neuron.output_gate
        self.r_width = neuron.d_state * neuron.degree
        self.grid = numpy.array([(2 * i - (levels - 1)) / (levels - 1) for i in range(levels)])
        self.u = Rows(neuron.d_model)  # inputs by number; 0 stands for none, before the first step
        self.u.add(numpy.zeros((1, neuron.d_model)))
        self.radius = Rows(1)
        self.radius.add(numpy.zeros((1, 1)))
        self.first: dict[int, tuple[int, int]] = {}  # pair -> its first row below, and how many it has
        self.r, self.s = Rows(self.r_width, numpy.uint8), Rows(neuron.d_state, numpy.uint8)
        gates = neuron.d_state if self.gated else 0
        self.gate, self.gate_radius, self.now = Rows(gates), Rows(gates), Rows(1, numpy.int64)
        self.both_sides = 0
        self.float64_error = self.float32_error = 0.0

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
        previous = bounds.Bounded(previous.value.masked_fill(none, 0), previous.radius.masked_fill(none, 0))
        z, radius = bounds.drive(self.layer, u, previous)
        self.float64_error = max(self.float64_error, float(radius.max()))
        self._compare_float32(z, u.value, previous.value)
        r_width, both = self.r_width, self.r_width + self.d_state
        lower, upper = (self._level(z[:, :both] + side * self.tolerance) for side in (-1, 1))
        gate, gate_radius = z[:, both:].numpy(), radius[:, both:].numpy()
        for row, key in enumerate(keys):
            unsure = numpy.flatnonzero(lower[row] != upper[row])
            if 2 ** len(unsure) > MOST_SIDES:
                raise TooUnsure(len(unsure))
            self.both_sides += len(unsure)
            self.first[key] = (len(self.r), 2 ** len(unsure))
            for sides in product((False, True), repeat=len(unsure)):
                chosen = lower[row].copy()
                chosen[unsure] = numpy.where(sides, upper[row][unsure], chosen[unsure])
                self.r.add(chosen[None, :r_width])
                self.s.add(chosen[None, r_width:])
                self.gate.add(gate[row : row + 1])
                self.gate_radius.add(gate_radius[row : row + 1])
                self.now.add(now[row : row + 1, None])

    def _bounded(self, numbers: Array) -> bounds.Bounded:
        return bounds.Bounded(torch.from_numpy(self.u[numbers]), torch.from_numpy(self.radius[numbers]))

    def _level(self, z: Tensor) -> Array:
        """The level of each entry, as the network rounds it: 0 the lowest."""
        values = round_to_levels(z, self.levels)
        levels: Array = ((values + 1) * ((self.levels - 1) / 2)).round().to(torch.uint8).numpy()
        return levels

    def _compare_float32(self, z: Tensor, u: Tensor, previous: Tensor) -> None:
        """What the layer's own parts make of these inputs in float32, in one batch."""
        small, before = u.float(), previous.float()
        v = self.single.norm_conv(small)
        self.float32_error = max(
            self.float32_error, float((self.single.drive(small, v, before).double() - z).abs().max())
        )

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

    def start(self) -> Array:
        """The levels of the state before the first step."""
        levels: Array = self._level(self.layer.neuron.x0.detach()[None].double())[0]
        return levels


class Rows:
    """Rows of an array that grows."""

    def __init__(self, width: int, kind: Any = numpy.float64) -> None:
        self._array, self._length = numpy.empty((64, width), kind), 0

    def __len__(self) -> int:
        """How many there are."""
        return self._length

    def add(self, rows: Array) -> None:
        """Some more, after the last."""
        wanted = self._length + len(rows)
        if wanted > len(self._array):
            grown = numpy.empty((max(wanted, 2 * len(self._array)), self._array.shape[1]), self._array.dtype)
            grown[: self._length] = self._array[: self._length]
            self._array = grown
        self._array[self._length : wanted] = rows
        self._length = wanted

    def __getitem__(self, numbers: Array) -> Array:
        """Those at these places."""
        rows: Array = self._array[numbers]
        return rows


class TooUnsure(Exception):
    """A drive is near too many boundaries at once to follow all sides. entries: how many."""

    def __init__(self, entries: int) -> None:
        super().__init__(entries)
        self.entries = entries
