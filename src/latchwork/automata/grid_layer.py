"""A layer with finitely many states: what it does at every pair of inputs that comes up."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from latchwork.automata import bounds
from latchwork.automata.moves import TooUnsure, make_moves
from latchwork.automata.rows import Rows
from latchwork.modules.layer import MinMaxLayer

Array = numpy.ndarray
ROWS = 4096  # rows evaluated at once
MOST_SIDES = 64  # ways to round one drive that are followed
ENTRY = 256  # bytes of an entry of a dictionary, about


class GridLayer:
    """A layer in float64, and what it does at every pair of inputs that has come up, each computed once.

    single: the layer in float32, to compare. unit: of the runs that are meant (automata/bounds.py). tolerance: how much
    further than that a drive may be off. max_bytes: of its tables; beyond it TooLarge is raised.
    """

    def __init__(self, layer: MinMaxLayer, single: MinMaxLayer, unit: float, tolerance: float, max_bytes: int) -> None:
        self.layer, self.single, self.unit, self.tolerance, self.max_bytes = layer, single, unit, tolerance, max_bytes
        neuron = layer.neuron
        self.gated = neuron.output_gate
        self.run = single if unit == bounds.UNITS["float32"] else layer  # in the precision that is meant
        self.moves = make_moves(neuron, single.neuron, self.run.neuron)
        self.levels = max(each.levels for each in self.moves)
        self.u, self.radius = Rows(neuron.d_model), Rows(1)  # inputs by number
        self.small = Rows(neuron.d_model, numpy.float32)  # the same inputs as float32 computes them
        self.first: dict[int, tuple[int, int]] = {}  # pair -> its first row below, and how many it has
        self.chosen = Rows(sum(each.entries for each in self.moves), numpy.uint8)  # see automata/moves.py
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
        tables = (self.u, self.radius, self.small, self.chosen, self.gate, self.gate_radius, self.now)
        size = sum(each.nbytes for each in tables) + ENTRY * (len(self.u) + len(self.first))
        if size > self.max_bytes:
            raise TooLarge(
                f"a layer's tables, of {len(self.u) - 1:,} inputs and {len(self.first):,} pairs of them so far, take "
                f"{size:,} bytes, more than max_bytes, which is {self.max_bytes:,}"
            )

    def drives(self, before: Array, now: Array) -> tuple[Array, Array]:
        """For pairs of inputs, by number: the first row of chosen, gate and now, and how many rows there are."""
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
        self._compare(z, radius, now, before)
        widths = [each.width for each in self.moves]
        pieces = zip(
            self.moves,
            z[:, : sum(widths)].split_with_sizes(widths, 1),
            radius[:, : sum(widths)].split_with_sizes(widths, 1),
            strict=True,
        )
        sides = [each.sides(part, off + self.tolerance, self.unit) for each, part, off in pieces]
        lower, upper = (numpy.concatenate(each, 1) for each in zip(*sides, strict=True))
        unsure = lower != upper
        entries = unsure.sum(1)
        if 2 ** int(entries.max()) > MOST_SIDES:
            raise TooUnsure(f"rounding may take {entries.max()} entries of one drive across a boundary at once")
        self.both_sides += int(entries.sum())
        counts = 2**entries
        ends = len(self.chosen) + numpy.cumsum(counts)
        self.first.update(zip(keys, zip((ends - counts).tolist(), counts.tolist(), strict=True), strict=True))
        again = numpy.repeat(numpy.arange(len(keys)), counts)
        side = numpy.arange(len(again)) - numpy.repeat(ends - counts - len(self.chosen), counts)
        bit = numpy.maximum(unsure.cumsum(1)[again] - 1, 0)  # the k-th unsure entry takes its side by the k-th bit
        chosen = numpy.where(unsure[again] & (side[:, None] >> bit & 1 == 1), upper[again], lower[again])
        self.chosen.add(chosen)
        self.gate.add(z[:, sum(widths) :].numpy()[again])
        self.gate_radius.add(radius[:, sum(widths) :].numpy()[again])
        self.now.add(now[again, None])
        self.check_size()

    def _bounded(self, numbers: Array) -> bounds.Bounded:
        return bounds.Bounded(torch.from_numpy(self.u[numbers]), torch.from_numpy(self.radius[numbers]), self.unit)

    def _compare(self, z: Tensor, radius: Tensor, now: Array, before: Array) -> None:
        """How far the layer's own parts, in float32 and in one batch, are off: an observation, not a bound.

        A run in the precision of the bounds must be within them, or they are not the bounds of this network.
        """
        off = self._run_drive(self.single, self.small, now, before) - z
        self.seen_error = max(self.seen_error, float(off.abs().max()))
        check_run(off if self.run is self.single else self._run_drive(self.layer, self.u, now, before) - z, radius)

    def _run_drive(self, layer: MinMaxLayer, inputs: Rows, now: Array, before: Array) -> Tensor:
        """The drive as a layer's own parts compute it."""
        u, last = (torch.from_numpy(inputs[each]) for each in (now, before))
        previous = layer.norm_conv(last).masked_fill(torch.from_numpy(before == 0)[:, None], 0)
        return layer.drive(u.unsqueeze(1), previous)[:, 0].double()

    def source(self, rows: Array) -> Array:
        """What, with the states, the output at rows of `drives` depends on: the row, or without a gate the input."""
        found: Array = rows if self.gated else self.now[rows][:, 0]
        return found

    def recur(self, rows: Array, x: Array) -> Array:
        """The states that follow x at rows of `drives`, all as numbers."""
        ends = numpy.cumsum([each.entries for each in self.moves])[:-1]
        chosen = numpy.split(self.chosen[rows], ends, 1)
        return self._join([each.recur(*parts) for each, *parts in zip(self.moves, chosen, self._split(x), strict=True)])

    def values(self, x: Array) -> Tensor:
        """What the states x are, in float64."""
        return torch.from_numpy(
            self._join([each.values(part) for each, part in zip(self.moves, self._split(x), strict=True)])
        )

    def _split(self, x: Array) -> list[Array]:
        return numpy.split(x, numpy.cumsum([each.size for each in self.moves])[:-1], -1)

    def _join(self, parts: list[Array]) -> Array:
        return parts[0] if len(parts) == 1 else numpy.concatenate(parts, -1)

    def outputs(self, rows: Array, x: Array) -> tuple[bounds.Bounded, Tensor]:
        """The layer's output at rows of `drives` with states x (as numbers) after the step; also as float32 has it."""
        gate = torch.from_numpy(self.gate[rows]), torch.from_numpy(self.gate_radius[rows])
        found = bounds.respond(self.layer, self._bounded(self.now[rows][:, 0]), gate, self.values(x))
        small = self._run_outputs(self.single, self.small, rows, x)
        run = small.double() if self.run is self.single else self._run_outputs(self.layer, self.u, rows, x)
        check_run(bounds.length(run - found.value), found.radius)
        return found, small

    def _run_outputs(self, layer: MinMaxLayer, inputs: Rows, rows: Array, x: Array) -> Tensor:
        """The output as a layer's own parts compute it."""
        u = torch.from_numpy(inputs[self.now[rows][:, 0]])
        states = self.values(x).to(u.dtype)
        if self.gated:
            states = states * torch.from_numpy(self.gate[rows]).to(u.dtype).sigmoid()
        y: Tensor = u + layer.neuron.output(states)
        return y

    def start(self) -> Array:
        """The numbers of the states before the first step."""
        return self._join([each.start() for each in self.moves])


class TooLarge(Exception):
    """The tables would take more memory than is allowed."""


class OutOfBounds(Exception):
    """A run came to a number that the bounds exclude: so they are not those of this network, as it runs here."""


def check_run(off: Tensor, radius: Tensor) -> None:
    """Raise OutOfBounds where a run is further off than the bounds say."""
    if not bool((off.abs() <= radius).all()):
        raise OutOfBounds(
            f"the network, run here, is off by {float(off.abs().max()):.1e} where rounding allows "
            f"{float(radius.max()):.1e}: something in it does not compute what it was made to"
        )
