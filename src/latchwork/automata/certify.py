"""Is a trained network right on every word, of any length? A proof, a word on which it is wrong, or neither.

With `levels` the states of a network live on a finite grid, and minimum and maximum move them exactly. A layer's
input at a step is then one of finitely many rows, and so are the pairs (input before, input now) that its recurrence is
driven by. So the network and the machine it shall equal are walked through together, breadth first, all words at once:
from each pair of states by each symbol, the layers one after the other. What is not finite is rounding. Every drive,
before it is put on the grid, is computed in float64, and every run is covered whose drives differ from it by at most
`tolerance`: where a boundary of the grid is nearer than that, both sides are followed. The answer must be the machine's
by a margin of more than `tolerance`, at every step that can be reached.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy
import torch
from torch import Tensor

from latchwork.automata import bounds
from latchwork.automata.machine import Machine
from latchwork.models import MinMaxRNC_LM
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import round_to_levels

Array = numpy.ndarray
ROWS = 4096  # rows evaluated at once
PAIRS = 1 << 20  # of a state and a symbol, followed at once
MOST_SIDES = 64  # ways to round one drive that are followed


@dataclass(frozen=True)
class Proof:
    """The network gives the machine's output at every step of every word on which the machine gives one.

    It holds for every run whose drives are within `tolerance` of exact. float64_error: any run in float64, whatever the
    order of its sums, is within this; float32_error: what runs in float32 were off by, at most, on every input that
    the layers can see. margin: the smallest distance between the right logit and the next. states: pairs of states
    of network and machine. inputs: of each layer, how many it can see. both_sides: drives that were followed on both
    sides of a boundary.
    """

    states: int
    inputs: tuple[int, ...]
    drives: tuple[int, ...]
    both_sides: int
    margin: float
    tolerance: float
    float64_error: float
    float32_error: float
    longest: int
    seconds: float


@dataclass(frozen=True)
class Counterexample:
    """A word after which the network, run in float32, is wrong: what it said, and what it should have said."""

    word: tuple[int, ...]
    said: int
    expected: int
    states: int
    seconds: float


@dataclass(frozen=True)
class Unknown:
    """Neither: why, and how far the search went. word: where it came to an end, if at a word."""

    reason: str
    states: int
    seconds: float
    word: tuple[int, ...] | None = None


def certify(
    model: MinMaxRNC_LM,
    machine: Machine,
    *,
    no_answer: int | None = None,
    tolerance: float = 1e-4,
    max_states: int = 5_000_000,
    watch: Callable[[int, int], None] | None = None,
) -> Proof | Counterexample | Unknown:
    """Walk network and machine through all words together.

    no_answer: the machine's output where none is asked for. watch: called with the states found and those to follow.
    """
    start = time.monotonic()
    reason = _unfit(model, machine, no_answer)
    if reason is not None:
        return Unknown(reason, 0, 0.0)
    walk = _Walk(model, machine, no_answer, tolerance)
    with torch.no_grad():
        return walk.run(max_states, watch, start)


def _unfit(model: MinMaxRNC_LM, machine: Machine, no_answer: int | None) -> str | None:
    config = model.backbone.config
    if config.levels is None:
        return "the network has no levels: its states are not on a finite grid"
    if machine.n_symbols > model.vocab_size:
        return f"the machine has {machine.n_symbols} symbols, the network {model.vocab_size} tokens"
    outputs = machine.outputs[machine.outputs != no_answer] if no_answer is not None else machine.outputs
    if outputs.size and outputs.max() >= model.vocab_size:
        return f"the machine has an output {outputs.max()}, the network {model.vocab_size} logits"
    return None


class _Layer:
    """A layer in float64, and what it does at every pair of inputs that has come up, each computed once."""

    def __init__(self, layer: MinMaxLayer, single: MinMaxLayer, levels: int, tolerance: float) -> None:
        self.layer, self.single, self.levels, self.tolerance = layer, single, levels, tolerance
        neuron = layer.neuron
        self.d_state, self.degree, self.gated = neuron.d_state, neuron.degree, neuron.output_gate
        self.r_width = neuron.d_state * neuron.degree
        self.grid = numpy.array([(2 * i - (levels - 1)) / (levels - 1) for i in range(levels)])
        self.u = _Rows(neuron.d_model)  # inputs by number; 0 stands for none, before the first step
        self.u.add(numpy.zeros((1, neuron.d_model)))
        self.radius = _Rows(1)
        self.radius.add(numpy.zeros((1, 1)))
        self.first: dict[int, tuple[int, int]] = {}  # pair -> its first row below, and how many it has
        self.r, self.s = _Rows(self.r_width, numpy.uint8), _Rows(neuron.d_state, numpy.uint8)
        self.gate, self.now = _Rows(neuron.d_state if self.gated else 1), _Rows(1, numpy.int64)
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
        gate = z[:, both:].sigmoid().numpy() if self.gated else numpy.zeros((len(keys), 1))
        for row, key in enumerate(keys):
            unsure = numpy.flatnonzero(lower[row] != upper[row])
            if 2 ** len(unsure) > MOST_SIDES:
                raise _TooUnsure(len(unsure))
            self.both_sides += len(unsure)
            self.first[key] = (len(self.r), 2 ** len(unsure))
            for sides in product((False, True), repeat=len(unsure)):
                chosen = lower[row].copy()
                chosen[unsure] = numpy.where(sides, upper[row][unsure], chosen[unsure])
                self.r.add(chosen[None, :r_width])
                self.s.add(chosen[None, r_width:])
                self.gate.add(gate[row : row + 1])
                self.now.add(now[row : row + 1, None])

    def _bounded(self, numbers: Array) -> bounds.Bounded:
        return bounds.Bounded(torch.from_numpy(self.u[numbers]), torch.from_numpy(self.radius[numbers]))

    def _level(self, z: Tensor) -> Array:
        """The level of each entry, as the network rounds it: 0 the lowest."""
        values = round_to_levels(z, self.levels)
        levels: Array = ((values + 1) * ((self.levels - 1) / 2)).round().to(torch.uint8).numpy()
        return levels

    def _compare_float32(self, z: Tensor, u: Tensor, previous: Tensor) -> None:
        """What the layer itself makes of these inputs in float32, in a batch and row by row."""
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
        u, states = self._bounded(self.now[rows][:, 0]), torch.from_numpy(self.grid[x])
        if self.gated:
            states = states * torch.from_numpy(self.gate[rows])
        output = self.layer.neuron.output
        return bounds.add(u, bounds.product(bounds.Bounded.exact(states), output.weight, output.bias))

    def start(self) -> Array:
        """The levels of the state before the first step."""
        levels: Array = self._level(self.layer.neuron.x0.detach()[None].double())[0]
        return levels


class _Walk:
    def __init__(self, model: MinMaxRNC_LM, machine: Machine, no_answer: int | None, tolerance: float) -> None:
        self.model, self.machine, self.tolerance = model, machine, tolerance
        self.single = copy.deepcopy(model).eval()
        self.double = copy.deepcopy(model).double().eval()
        levels = model.backbone.config.levels
        assert levels is not None
        pairs = zip(self.double.backbone.layers, self.single.backbone.layers, strict=True)
        self.layers = [_Layer(layer, single, levels, tolerance) for layer, single in pairs]  # type: ignore[arg-type]
        embedding = self.double.embedding.weight.detach().numpy()
        self.layers[0].u.add(embedding)
        self.layers[0].radius.add(numpy.zeros((len(embedding), 1)))
        self.numbers: list[dict[bytes, int]] = [{} for _ in self.layers]  # (row, x) -> the next layer's input
        self.asked = machine.outputs != (-1 if no_answer is None else no_answer)
        self.live = leads_to(machine.transitions, self.asked)
        self.margin = float("inf")

    def run(
        self, max_states: int, watch: Callable[[int, int], None] | None, start: float
    ) -> Proof | Counterexample | Unknown:
        self.seen, self.waiting = set[bytes](), _Front.start(self)
        parents: list[tuple[Array, Array]] = []  # of each depth: the place before, and the symbol
        depth = 0

        def unknown(reason: str, word: tuple[int, ...] | None = None) -> Unknown:
            return Unknown(reason, len(self.seen), time.monotonic() - start, word)

        while len(self.waiting):
            if watch is not None:
                watch(len(self.seen), len(self.waiting))
            if len(self.seen) > max_states:
                return unknown(f"more than {max_states:,} states: allow more by max_states, or train with fewer levels")
            try:
                front, origin, symbols, wrong = self.waiting.follow(self)
            except _TooUnsure as error:
                return unknown(f"a drive is within the tolerance of {error.entries} boundaries at once")
            if wrong is not None:
                place, symbol = wrong
                word = _word(parents, place, symbol)
                return self._replay(word, start) or unknown("an answer is within the tolerance of wrong", word)
            parents.append((origin, symbols))
            self.waiting, depth = front, depth + 1
        return Proof(
            states=len(self.seen),
            inputs=tuple(len(layer.u) - 1 for layer in self.layers),
            drives=tuple(len(layer.first) for layer in self.layers),
            both_sides=sum(layer.both_sides for layer in self.layers),
            margin=self.margin,
            tolerance=self.tolerance,
            float64_error=max(layer.float64_error for layer in self.layers),
            float32_error=max(layer.float32_error for layer in self.layers),
            longest=depth,
            seconds=time.monotonic() - start,
        )

    def logits(self, rows: Array, x: Array) -> Tensor:
        """The logits where the last layer is at these rows of its drives and states."""
        pieces = []
        for first in range(0, len(rows), ROWS):
            y = self.layers[-1].outputs(rows[first : first + ROWS], x[first : first + ROWS]).value
            backbone = self.double.backbone
            if backbone.config.use_postlayers_ffn:
                y = y + backbone.postlayers_ffn(backbone.norm_postlayers_ffn(y))
            pieces.append(self.double.head(backbone.norm_postlayers(y)))
        return torch.cat(pieces)

    def _replay(self, word: tuple[int, ...], start: float) -> Counterexample | None:
        """What the network itself says to the word, one step after the other; None if it is right after all."""
        tokens = torch.tensor([word])
        said = self.single(tokens)[0].argmax(-1)[0].tolist()
        expected = self.machine.run(tokens.numpy())[0].tolist()
        state, asked = self.machine.start, []
        for token in word:
            asked.append(bool(self.asked[state, token]))
            state = int(self.machine.transitions[state, token])
        for step, each in enumerate(asked):
            if each and said[step] != expected[step]:
                return Counterexample(
                    word[: step + 1], said[step], expected[step], len(self.seen), time.monotonic() - start
                )
        return None


@dataclass
class _Front:
    """States to go on from: the machine's state, the number of each layer's input, each layer's state."""

    q: Array
    inputs: list[Array]
    x: list[Array]

    def __len__(self) -> int:
        return len(self.q)

    @staticmethod
    def start(walk: _Walk) -> _Front:
        return _Front(
            numpy.array([walk.machine.start]),
            [numpy.zeros(1, numpy.int64) for _ in walk.layers],
            [layer.start()[None] for layer in walk.layers],
        )

    def follow(self, walk: _Walk) -> tuple[_Front, Array, Array, tuple[int, int] | None]:
        """By every symbol from every state: the states that are new, from where and by which symbol they came.

        The last: the place and symbol of an answer that is wrong, or not right by enough.
        """
        here, symbols = numpy.nonzero(walk.live[self.q])
        fronts, origins, by = [], [], []
        for first in range(0, len(here), PAIRS):
            part = slice(first, first + PAIRS)
            front, origin, symbol, wrong = self._follow(walk, here[part], symbols[part])
            if wrong is not None:
                return self, here, symbols, wrong
            fronts.append(front)
            origins.append(origin)
            by.append(symbol)
        if not fronts:
            return (
                _Front(self.q[:0], [each[:0] for each in self.inputs], [each[:0] for each in self.x]),
                here,
                symbols,
                None,
            )
        together = _Front(
            numpy.concatenate([front.q for front in fronts]),
            [numpy.concatenate(each) for each in zip(*(front.inputs for front in fronts), strict=True)],
            [numpy.concatenate(each) for each in zip(*(front.x for front in fronts), strict=True)],
        )
        return together, numpy.concatenate(origins), numpy.concatenate(by), None

    def _follow(self, walk: _Walk, here: Array, symbols: Array) -> tuple[_Front, Array, Array, tuple[int, int] | None]:
        now = symbols.astype(numpy.int64) + 1  # token k is input k + 1 of the first layer
        inputs: list[Array] = []
        states: list[Array] = []
        for depth, layer in enumerate(walk.layers):
            rows, counts = layer.drives(self.inputs[depth][here], now)
            if counts.max(initial=1) > 1:  # follow both sides of a boundary
                again = numpy.repeat(numpy.arange(len(here)), counts)
                offset = numpy.arange(len(again)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
                here, symbols, now, rows = here[again], symbols[again], now[again], rows[again] + offset
                inputs, states = [each[again] for each in inputs], [each[again] for each in states]
            x = layer.recur(rows, self.x[depth][here])
            inputs.append(now)
            states.append(x)
            if depth + 1 < len(walk.layers):
                now = self._number(walk, depth, rows, x)
        q = self.q[here]
        wrong = self._check(walk, q, symbols, rows, states[-1])
        if wrong is not None:
            return self, here, symbols, (int(here[wrong]), int(symbols[wrong]))
        q = walk.machine.transitions[q, symbols]
        keys = numpy.concatenate([_bytes(q), _bytes(inputs[-1]), states[-1]], 1)
        keys = numpy.ascontiguousarray(keys)
        flat = keys.view(f"V{keys.shape[1]}").ravel()
        _, first = numpy.unique(flat, return_index=True)
        first.sort()
        new = [place for place in first.tolist() if flat[place].tobytes() not in walk.seen]
        walk.seen.update(flat[place].tobytes() for place in new)
        front = _Front(q[new], [each[new] for each in inputs], [each[new] for each in states])
        return front, here[new], symbols[new], None

    def _number(self, walk: _Walk, depth: int, rows: Array, x: Array) -> Array:
        """The number of the next layer's input: of rows of drives (or, without a gate, inputs) and states."""
        layer, following, numbers = walk.layers[depth], walk.layers[depth + 1], walk.numbers[depth]
        source = rows[:, None] if layer.gated else layer.now[rows]
        keys = numpy.ascontiguousarray(numpy.concatenate([_bytes(source[:, 0]), x], 1))
        flat = keys.view(f"V{keys.shape[1]}").ravel()
        unique, first, places = numpy.unique(flat, return_index=True, return_inverse=True)
        words = [each.tobytes() for each in unique]
        missing = [k for k, word in enumerate(words) if word not in numbers]
        for start in range(0, len(missing), ROWS):
            part = first[missing[start : start + ROWS]]
            y = layer.outputs(rows[part], x[part])
            for offset, k in enumerate(missing[start : start + ROWS]):
                numbers[words[k]] = len(following.u) + offset
            following.u.add(y.value.numpy())
            following.radius.add(y.radius.numpy())
        return numpy.array([numbers[word] for word in words])[places]

    def _check(self, walk: _Walk, q: Array, symbols: Array, rows: Array, x: Array) -> int | None:
        """The place of an answer that is not right by more than the tolerance, or None."""
        asked = numpy.flatnonzero(walk.asked[q, symbols])
        if not len(asked):
            return None
        expected = walk.machine.outputs[q[asked], symbols[asked]]
        keys = numpy.ascontiguousarray(numpy.concatenate([_bytes(rows[asked]), x[asked]], 1))
        _, first, places = numpy.unique(keys.view(f"V{keys.shape[1]}").ravel(), return_index=True, return_inverse=True)
        logits = walk.logits(rows[asked][first], x[asked][first])
        best, answer = logits.topk(min(2, logits.shape[1]), -1)
        gap = (best[:, 0] - best[:, -1] if best.shape[1] > 1 else torch.full((len(best),), float("inf"))).numpy()
        right = (answer[:, 0].numpy()[places] == expected) & (gap[places] > walk.tolerance)
        if not right.all():
            return int(asked[numpy.flatnonzero(~right)[0]])
        walk.margin = min(walk.margin, float(gap.min()))
        return None


class _Rows:
    """Rows of an array that grows."""

    def __init__(self, width: int, kind: Any = numpy.float64) -> None:
        self._array, self._length = numpy.empty((64, width), kind), 0

    def __len__(self) -> int:
        return self._length

    def add(self, rows: Array) -> None:
        wanted = self._length + len(rows)
        if wanted > len(self._array):
            grown = numpy.empty((max(wanted, 2 * len(self._array)), self._array.shape[1]), self._array.dtype)
            grown[: self._length] = self._array[: self._length]
            self._array = grown
        self._array[self._length : wanted] = rows
        self._length = wanted

    def __getitem__(self, numbers: Array) -> Array:
        rows: Array = self._array[numbers]
        return rows


class _TooUnsure(Exception):
    def __init__(self, entries: int) -> None:
        super().__init__(entries)
        self.entries = entries


def _bytes(numbers: Array) -> Array:
    """Integers as 8 bytes each, (n, 8)."""
    return numpy.ascontiguousarray(numbers, numpy.int64).view(numpy.uint8).reshape(-1, 8)


def leads_to(transitions: Array, asked: Array) -> Array:
    """(states, symbols): whether an answer is asked for at this step, or after it on some way."""
    useful: Array = numpy.asarray(asked.any(1))
    while True:
        more: Array = useful | useful[transitions].any(1)
        if (more == useful).all():
            return numpy.asarray(asked | useful[transitions])
        useful = more


def _word(parents: list[tuple[Array, Array]], place: int, symbol: int) -> tuple[int, ...]:
    word = [symbol]
    for origin, symbols in reversed(parents):
        word.append(int(symbols[place]))
        place = int(origin[place])
    return tuple(reversed(word))
