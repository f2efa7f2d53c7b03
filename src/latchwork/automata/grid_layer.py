"""A layer with finitely many states: what it does at every pair of inputs that comes up."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from latchwork.automata import bounds
from latchwork.automata.moves import Choices, TooUnsure, make_moves
from latchwork.automata.rows import Rows
from latchwork.modules.layer import MinMaxLayer

Array = numpy.ndarray
ROWS = 4096  # rows evaluated at once
MOST_SIDES = 64  # ways to round one drive that are followed from one state
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
        self.row: dict[int, int] = {}  # pair -> its row below
        self.chosen = Rows(sum(each.entries for each in self.moves), numpy.uint8)  # see automata/moves.py
        gates = neuron.d_state if self.gated else 0
        self.gate, self.gate_radius, self.now = Rows(gates), Rows(gates), Rows(1, numpy.int64)
        self.unsure: dict[int, list[tuple[int, Array]]] = {}  # row -> entries where several options are possible
        self.is_unsure = Rows(1, numpy.bool_)  # by row
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
        size = sum(each.nbytes for each in tables) + ENTRY * (
            len(self.u) + len(self.row) + len(self.unsure) + self.both_sides
        )
        if size > self.max_bytes:
            raise TooLarge(
                f"a layer's tables, of {len(self.u) - 1:,} inputs and {len(self.row):,} pairs of them so far, take "
                f"{size:,} bytes, more than max_bytes, which is {self.max_bytes:,}"
            )

    def drives(self, before: Array, now: Array) -> Array:
        """For pairs of inputs, by number: the row of chosen, gate and now."""
        keys, places = numpy.unique(before.astype(numpy.int64) << 32 | now, return_inverse=True)
        missing = [key for key in keys.tolist() if key not in self.row]
        for start in range(0, len(missing), ROWS):
            self._compute(missing[start : start + ROWS])
        found: Array = numpy.array([self.row[key] for key in keys.tolist()])[places]
        return found

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
        choices = [each.choices(part, off + self.tolerance, self.unit) for each, part, off in pieces]
        first = len(self.chosen)
        self.row.update(zip(keys, range(first, first + len(keys)), strict=True))
        self._keep_unsure(choices, first)
        self.chosen.add(numpy.concatenate([each.first for each in choices], 1))
        self.gate.add(z[:, sum(widths) :].numpy())
        self.gate_radius.add(radius[:, sum(widths) :].numpy())
        self.now.add(now[:, None])
        self.is_unsure.add(numpy.array([[row in self.unsure] for row in range(first, first + len(keys))]))
        self.check_size()

    def _keep_unsure(self, choices: list[Choices], first: int) -> None:
        """The entries of some more rows, of which the first has this number, where several options are possible."""
        begin = 0
        for moves, each in zip(self.moves, choices, strict=True):
            if len(each.row):
                places, starts = numpy.unique(each.row * moves.entries + each.entry, return_index=True)
                for place, options in zip(places.tolist(), numpy.split(each.option, starts[1:]), strict=True):
                    row, entry = divmod(place, moves.entries)
                    self.unsure.setdefault(first + row, []).append((begin + entry, options))
                self.both_sides += len(places)
            begin += moves.entries

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

    def follow(self, rows: Array, x: Array) -> tuple[Array, Array]:
        """The states that may follow x at rows of `drives`, all as numbers; and, of each, the place of its x."""
        unsure = self.is_unsure[rows][:, 0]
        if not unsure.any():
            return numpy.arange(len(rows)), self.recur(self.chosen[rows], x)
        places = numpy.flatnonzero(unsure)
        places = places[rows[places].argsort(kind="stable")]
        numbers, starts = numpy.unique(rows[places], return_index=True)
        origins, chosen = [numpy.flatnonzero(~unsure)], [self.chosen[rows[~unsure]]]
        for row, here in zip(numbers.tolist(), numpy.split(places, starts[1:]), strict=True):
            origin, found = self._all_chosen(row, x[here])
            origins.append(here[origin])
            chosen.append(found)
        together = numpy.concatenate(origins)
        order = together.argsort(kind="stable")
        return together[order], self.recur(numpy.concatenate(chosen)[order], x[together[order]])

    def _all_chosen(self, row: int, x: Array) -> tuple[Array, Array]:
        """All that may be chosen at a row, where states x move by it to others; and, of each, the place of its x."""
        origin, chosen = numpy.arange(len(x)), self.chosen[numpy.full(len(x), row)]
        for entry, options in self.unsure[row]:
            decides = self._decides(entry, options, x)[origin]
            counts = numpy.where(decides, len(options), 1)
            again = numpy.repeat(numpy.arange(len(origin)), counts)
            side = numpy.arange(len(again)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
            origin, chosen, decides = origin[again], chosen[again], decides[again]
            chosen[decides, entry] = options[side[decides]]
            if numpy.bincount(origin).max(initial=0) > MOST_SIDES:
                raise TooUnsure(f"rounding may lead from one state to more than {MOST_SIDES} others at once")
        return origin, chosen

    def _decides(self, entry: int, options: Array, x: Array) -> Array:
        """Whether it depends on which of the options is chosen at an entry where states x move."""
        for moves, part in zip(self.moves, self._split(x), strict=True):
            if entry < moves.entries:
                return moves.decides(entry, options, part)
            entry -= moves.entries
        raise IndexError(entry)

    def recur(self, chosen: Array, x: Array) -> Array:
        """The states that follow x by what is chosen, all as numbers."""
        ends = numpy.cumsum([each.entries for each in self.moves])[:-1]
        parts = zip(self.moves, numpy.split(chosen, ends, 1), self._split(x), strict=True)
        return self._join([each.recur(*part) for each, *part in parts])

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
