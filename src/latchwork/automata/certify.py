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

import numpy
import torch
from torch import Tensor

from latchwork.automata import bounds
from latchwork.automata.grid_layer import ROWS, GridLayer, TooUnsure
from latchwork.automata.machine import Machine
from latchwork.models import MinMaxRNC_LM

Array = numpy.ndarray
PAIRS = 1 << 20  # of a state and a symbol, followed at once


@dataclass(frozen=True)
class Proof:
    """The network gives the machine's output at every step of every word on which the machine gives one.

    It holds for every run whose drives and logits are within `tolerance` of exact. float64_error: any run in float64,
    whatever the order of its sums, is within this. float32_error: what the layers' drives, computed in float32 in a
    batch, were off by at most, over every pair of inputs that they can see. margin: the smallest distance between the
    right logit and the next. states: pairs of states of network and machine. inputs, drives: of each layer, how many
    inputs it can see, and how many pairs of them. both_sides: drives that were followed on both sides of a boundary.
    longest: steps after which nothing new came.
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
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0; got {tolerance}")
    if max_states < 1:
        raise ValueError(f"max_states must be at least 1; got {max_states}")
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


class _Walk:
    def __init__(self, model: MinMaxRNC_LM, machine: Machine, no_answer: int | None, tolerance: float) -> None:
        self.model, self.machine, self.tolerance = model, machine, tolerance
        self.single = copy.deepcopy(model).eval()
        self.double = copy.deepcopy(model).double().eval()
        levels = model.backbone.config.levels
        assert levels is not None
        pairs = zip(self.double.backbone.layers, self.single.backbone.layers, strict=True)
        self.layers = [GridLayer(layer, single, levels, tolerance) for layer, single in pairs]  # type: ignore[arg-type]
        embedding = self.double.embedding.weight.detach().numpy()
        self.layers[0].u.add(embedding)
        self.layers[0].radius.add(numpy.zeros((len(embedding), 1)))
        self.numbers: list[dict[bytes, int]] = [{} for _ in self.layers]  # (row, x) -> the next layer's input
        self.asked = machine.outputs != (-1 if no_answer is None else no_answer)
        self.live = leads_to(machine.transitions, self.asked)
        self.margin, self.logits_error = float("inf"), 0.0

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
            except TooUnsure as unsure:
                return unknown(f"a drive is within the tolerance of {unsure.entries} boundaries at once")
            if wrong is not None:
                place, symbol = wrong
                word = _word(parents, place, symbol)
                return self._replay(word, start) or unknown("an answer is within the tolerance of wrong", word)
            parents.append((origin, symbols))
            self.waiting, depth = front, depth + 1
        error = max(self.logits_error, *(layer.float64_error for layer in self.layers))
        if error > self.tolerance:
            return unknown(f"rounding in float64 may come to {error:.1e}, more than the tolerance")
        return Proof(
            states=len(self.seen),
            inputs=tuple(len(layer.u) - 1 for layer in self.layers),
            drives=tuple(len(layer.first) for layer in self.layers),
            both_sides=sum(layer.both_sides for layer in self.layers),
            margin=self.margin,
            tolerance=self.tolerance,
            float64_error=error,
            float32_error=max(layer.float32_error for layer in self.layers),
            longest=depth,
            seconds=time.monotonic() - start,
        )

    def logits(self, rows: Array, x: Array) -> Tensor:
        """The logits where the last layer is at these rows of its drives and states."""
        pieces = []
        for first in range(0, len(rows), ROWS):
            y, backbone = (
                self.layers[-1].outputs(rows[first : first + ROWS], x[first : first + ROWS]),
                self.double.backbone,
            )
            if backbone.config.use_postlayers_ffn:
                inside = bounds.normalise(backbone.norm_postlayers_ffn, y)
                y = bounds.add(y, bounds.feed_forward(backbone.postlayers_ffn, inside))
            y = bounds.normalise(backbone.norm_postlayers, y)
            logits, radius = bounds.product_by_entry(y, self.double.head.weight)
            self.logits_error = max(self.logits_error, float(radius.max()))
            pieces.append(logits)
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
