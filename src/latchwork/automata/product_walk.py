"""A network with finitely many states and a machine, walked through together: all words at once, breadth first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from latchwork.automata import advice, bounds
from latchwork.automata.answers import Answers
from latchwork.automata.as_made import copy_as_made
from latchwork.automata.findings import Counterexample, Proof, Unknown
from latchwork.automata.grid_layer import ROWS, GridLayer, OutOfBounds, TooLarge
from latchwork.automata.keys import distinct
from latchwork.automata.mistakes import first_mistake
from latchwork.automata.moves import TooUnsure
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM

Array = numpy.ndarray
PAIRS = 1 << 18  # of a state and a symbol, followed at once


class ProductWalk:
    """A network and a machine, walked through together; `run` once.

    model: the network itself, which an answer that may be wrong is asked of again. asked, live: (states, symbols) of
    the machine, whether an answer is asked for, and whether one is then or later.
    """

    def __init__(
        self,
        model: MinMaxRNC_LM,
        machine: Machine,
        asked: Array,
        live: Array,
        *,
        precision: str,
        tolerance: float,
        max_bytes: int,
    ) -> None:
        self.model, self.machine, self.asked, self.live = model, machine, asked, live
        self.precision, self.tolerance = precision, tolerance
        unit = bounds.UNITS[precision]
        self.single, self.double = copy_as_made(model), copy_as_made(model, torch.float64)
        pairs = zip(self.double.backbone.layers, self.single.backbone.layers, strict=True)
        self.numbers: list[dict[Any, int]] = [{} for _ in self.single.backbone.layers]  # (input, x) -> the next input
        self.layers = [
            GridLayer(layer, single, unit, tolerance, max_bytes)  # type: ignore[arg-type]
            for layer, single in pairs
        ]
        embedding = self.single.embedding.weight.detach()
        self.layers[0].add_inputs(bounds.Bounded.exact(embedding, unit), embedding)
        self.answers = Answers(self.double, self.single, self.layers[-1], tolerance)
        self.seen = set[Any]()

    def run(
        self, max_states: int, watch: Callable[[int, int], None] | None, start: float
    ) -> Proof | Counterexample | Unknown:
        """Until nothing new comes, an answer is wrong, or it cannot go on. start: when the clock began."""
        config = self.single.backbone.config
        try:
            return self._run(max_states, watch, start)
        except (TooUnsure, OverflowError) as error:
            return self._unknown(str(error), start, advice.less_rounding(config, self.precision, self.tolerance))
        except TooLarge as error:
            return self._unknown(str(error), start, advice.more_room(config, "max_bytes"))
        except OutOfBounds as error:
            return self._unknown(str(error), start, advice.ARITHMETIC)

    def _unknown(self, reason: str, start: float, what_to_do: str, word: tuple[int, ...] | None = None) -> Unknown:
        return Unknown(reason, len(self.seen), time.monotonic() - start, word, what_to_do, self.machine)

    def _run(
        self, max_states: int, watch: Callable[[int, int], None] | None, start: float
    ) -> Proof | Counterexample | Unknown:
        waiting, depth = _Front.start(self), 0
        parents: list[tuple[Array, Array]] = []  # of each depth: the place before, and the symbol
        while len(waiting):
            if watch is not None:
                watch(len(self.seen), len(waiting))
            if len(self.seen) > max_states:
                what_to_do = advice.more_room(self.single.backbone.config, "max_states")
                return self._unknown(f"more than {max_states:,} states", start, what_to_do)
            front, origin, symbols, wrong = waiting.follow(self)
            if wrong is not None:
                word = _word(parents, *wrong)
                if (found := self.replay(numpy.array([word]), start)) is not None:
                    return found
                what_to_do = advice.less_rounding(self.single.backbone.config, self.precision, self.tolerance)
                reason = "an answer is right, but rounding may lead to another"
                return self._unknown(reason, start, what_to_do, word)
            parents.append((origin, symbols))
            waiting, depth = front, depth + 1
        return Proof(
            states=len(self.seen),
            inputs=tuple(len(layer.u) - 1 for layer in self.layers),
            drives=tuple(len(layer.row) for layer in self.layers),
            both_sides=sum(layer.both_sides for layer in self.layers),
            margin=self.answers.margin,
            precision=self.precision,
            tolerance=self.tolerance,
            bound=max(self.answers.bound, *(layer.bound for layer in self.layers)),
            float32_seen=max(self.answers.seen_error, *(layer.seen_error for layer in self.layers)),
            longest=depth,
            seconds=time.monotonic() - start,
        )

    def replay(self, words: Array, start: float) -> Counterexample | None:
        """What the network itself says to the words, one step after the other; None if it is right after all."""
        found = first_mistake(self.model, self.machine, self.asked, words)
        return None if found is None else Counterexample(*found, len(self.seen), time.monotonic() - start, self.machine)


@dataclass
class _Front:
    """States to go on from: the machine's state, the number of each layer's input, each layer's state."""

    q: Array
    inputs: list[Array]
    x: list[Array]

    def __len__(self) -> int:
        return len(self.q)

    @staticmethod
    def start(walk: ProductWalk) -> _Front:
        return _Front(
            numpy.array([walk.machine.start]),
            [numpy.zeros(1, numpy.int64) for _ in walk.layers],
            [layer.start()[None] for layer in walk.layers],
        )

    def follow(self, walk: ProductWalk) -> tuple[_Front, Array, Array, tuple[int, int] | None]:
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

    def _follow(
        self, walk: ProductWalk, here: Array, symbols: Array
    ) -> tuple[_Front, Array, Array, tuple[int, int] | None]:
        now = symbols.astype(numpy.int64) + 1  # token k is input k + 1 of the first layer
        inputs: list[Array] = []
        states: list[Array] = []
        for depth, layer in enumerate(walk.layers):
            rows = layer.drives(self.inputs[depth][here], now)
            again, x = layer.follow(rows, self.x[depth][here])  # all that rounding may lead to
            here, symbols, now, rows = here[again], symbols[again], now[again], rows[again]
            inputs, states = [each[again] for each in inputs], [each[again] for each in states]
            inputs.append(now)
            states.append(x)
            if depth + 1 < len(walk.layers):
                now = self._number(walk, depth, rows, x)
        q = self.q[here]
        wrong = self._check(walk, q, symbols, rows, states[-1])
        if wrong is not None:
            return self, here, symbols, (int(here[wrong]), int(symbols[wrong]))
        q = walk.machine.transitions[q, symbols]
        keys, first, _ = distinct(walk.layers[-1].levels, states[-1], q << 31 | inputs[-1], walk.machine.n_states << 31)
        new = sorted(place for key, place in zip(keys, first.tolist(), strict=True) if key not in walk.seen)
        walk.seen.update(keys)
        front = _Front(q[new], [each[new] for each in inputs], [each[new] for each in states])
        return front, here[new], symbols[new], None

    def _number(self, walk: ProductWalk, depth: int, rows: Array, x: Array) -> Array:
        """The number of the next layer's input: of rows of drives (or, without a gate, inputs) and states."""
        layer, following, numbers = walk.layers[depth], walk.layers[depth + 1], walk.numbers[depth]
        keys, first, places = distinct(layer.levels, x, layer.source(rows))
        missing = [k for k, key in enumerate(keys) if key not in numbers]
        for start in range(0, len(missing), ROWS):
            part = first[missing[start : start + ROWS]]
            for offset, k in enumerate(missing[start : start + ROWS]):
                numbers[keys[k]] = len(following.u) + offset
            following.add_inputs(*layer.outputs(rows[part], x[part]))
            following.check_size()
        found: Array = numpy.array([numbers[key] for key in keys])[places]
        return found

    def _check(self, walk: ProductWalk, q: Array, symbols: Array, rows: Array, x: Array) -> int | None:
        """The place of an answer that is not right in every run, or None."""
        asked = numpy.flatnonzero(walk.asked[q, symbols])
        if not len(asked):
            return None
        said = walk.answers.at(rows[asked], x[asked])
        wrong = numpy.flatnonzero(said != walk.machine.outputs[q[asked], symbols[asked]])
        return int(asked[wrong[0]]) if len(wrong) else None


def _word(parents: list[tuple[Array, Array]], place: int, symbol: int) -> tuple[int, ...]:
    word = [symbol]
    for origin, symbols in reversed(parents):
        word.append(int(symbols[place]))
        place = int(origin[place])
    return tuple(reversed(word))
