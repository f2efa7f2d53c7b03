"""Any finite automaton as a task: after each letter, what is the output of the state one is in?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import lcm

import numpy

from latchwork.machines import Machine, walk
from latchwork.machines.walk import ROWS
from latchwork.tasks.task import BLOCK, IGNORE, Array, Random, Split, Task, make_machine

FACES = 4096  # of a die, at most: where it cannot be fair, one letter has at most one face more than another
SPLITS = {
    "train": Split(sequences=20_000, shortest=32, longest=64),
    "validation": Split(sequences=1_000, shortest=128, longest=256),
    "evaluation": Split(sequences=1_000, shortest=1 << 16, longest=1 << 16),
}


class Automaton(Task):
    """The answer at every step is the output of the state that the letters so far lead to.

    successor: (states, letters), the state that follows, or -1 where a letter may not come. output: (states,), the
    answer of each state, a token, or IGNORE. start: the state before the first letter. Letters and answers share the
    tokens 0, 1, ...; `splits` may replace the default data sets. symbol_names, output_names: of the task's machine.

    Letters are drawn evenly from those that may come. Where that would settle the answer for good, as in a language
    that a single mistake leaves, each sequence has a step, drawn evenly from all of its steps, before which letters
    that settle the answer are left out while there are others. So a language is left about halfway on average.
    """

    def __init__(
        self,
        successor: Array | Sequence[Sequence[int]],
        output: Array | Sequence[int],
        *,
        start: int = 0,
        name: str = "automaton",
        splits: Mapping[str, Split] | None = None,
        symbol_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        self.successor, self.output, self.start = numpy.array(successor, int), numpy.array(output, int), start
        self.name, self.splits = name, SPLITS if splits is None else splits
        self.symbol_names, self.output_names = symbol_names, output_names
        _check(self.successor, self.output, start)
        self.vocabulary = int(max(self.successor.shape[1], self.output.max() + 1))
        self._letter = _dice(self.successor, self.output)  # (choosers, states, faces)

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """Throw a die at each step: state and face give the letter, so that letters and states are one automaton."""
        choosers, states, faces = self._letter.shape
        letter = numpy.concatenate(self._letter, axis=1)  # (states, choosers * faces)
        successor = self.successor[numpy.arange(states)[:, None], letter]
        letter = letter.astype(numpy.min_scalar_type(self.vocabulary)).ravel()
        number = numpy.arange(states, dtype=numpy.min_scalar_type(states))
        output = self.output.astype(numpy.min_scalar_type(-self.vocabulary - abs(IGNORE)))
        state = numpy.full((len(lengths), 1), self.start)
        free = random("free", 0).integers(lengths)[:, None]  # the step from which any letter may come
        for block in count():
            first, last = block * BLOCK, min((block + 1) * BLOCK, int(lengths.max(initial=0)))
            die = random("tokens", block).integers(0, faces, (len(lengths), BLOCK), numpy.uint16)[:, : last - first]
            if choosers == 2:
                die += faces * (numpy.arange(first, last) >= free).astype(numpy.uint16)
            after, _ = run(successor, number, state[:, 0], die)
            before = numpy.hstack([state, after[:, :-1]])
            yield letter.take(before * (choosers * faces) + die), output.take(after)
            state = after[:, -1:].astype(int)

    def machine(self) -> Machine:
        """The automaton itself."""
        outputs = numpy.where(self.successor < 0, IGNORE, self.output[self.successor])
        return make_machine(self, self.successor, outputs, self.start, self.symbol_names, self.output_names)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """One step after the other."""
        answers, state = [], self.start
        for token in tokens:
            state = int(self.successor[state, token])
            answers.append(int(self.output[state]))
        return answers


def run(successor: Array, output: Array, state: Array, tokens: Array) -> tuple[Array, Array]:
    """The output of the state after each step, (rows, steps), and the state after the last, (rows,).

    successor: (states, tokens), the state that follows. output: (states,). state: (rows,), before the first step.
    tokens: (rows, steps). Steps at which no row can move are not taken.
    """
    outputs = output[successor]
    moves = (successor != numpy.arange(len(successor))[:, None]).any(0)  # the other tokens leave every state alone
    answers = numpy.empty(tokens.shape, output.dtype)
    last = numpy.empty_like(state)
    for first in range(0, len(tokens), ROWS):
        rows = slice(first, first + ROWS)
        busy = moves.take(tokens[rows]).any(0)
        after, last[rows] = walk.run(successor, outputs, state[rows], tokens[rows, slice(None) if busy.all() else busy])
        if after.shape[1] < len(busy):  # between busy steps the answer stays what it was
            after = numpy.hstack([output[state[rows], None], after]).take(busy.cumsum(), axis=1)
        answers[rows] = after
    return answers, last


def settled(successor: Array, output: Array) -> Array:
    """(states,): from here on, the answer stays the same whatever comes."""
    allowed = successor >= 0
    lowest = numpy.where(output == IGNORE, numpy.iinfo(int).max, output)
    highest = numpy.where(output == IGNORE, -1, output)
    while True:  # the extremes of all answers that can still come
        before = lowest, highest
        lowest = numpy.minimum(lowest, numpy.where(allowed, lowest[successor], lowest[:, None]).min(1))
        highest = numpy.maximum(highest, numpy.where(allowed, highest[successor], highest[:, None]).max(1))
        if (lowest == before[0]).all() and (highest == before[1]).all():
            return numpy.asarray(lowest >= highest)


def _dice(successor: Array, output: Array) -> Array:
    """(choosers, states, faces): the letter at each face, of the careful die, if one is needed, and of the free one."""
    allowed = successor >= 0
    careful = allowed & ~settled(successor, output)[successor]
    careful = numpy.where(careful.any(1, keepdims=True), careful, allowed)
    choosers = [allowed] if (careful == allowed).all() else [careful, allowed]
    faces = min(
        lcm(*(int(number) for chooser in choosers for number in set(chooser.sum(1)))), max(FACES, successor.shape[1])
    )
    return numpy.stack(
        [[numpy.resize(numpy.flatnonzero(letters), faces) for letters in chooser] for chooser in choosers]
    )


def _check(successor: Array, output: Array, start: int) -> None:
    states = len(successor)
    if successor.ndim != 2 or successor.size == 0:
        raise ValueError(f"successor must be (states, letters), of at least one each; got {successor.shape}")
    if successor.min() < -1 or successor.max() >= states:
        raise ValueError(f"successor must hold states 0..{states - 1}, or -1; got {successor.min()}..{successor.max()}")
    if (successor < 0).all(1).any():
        raise ValueError(
            f"successor must allow a letter in every state; state {(successor < 0).all(1).argmax()} has none"
        )
    if output.shape != (states,):
        raise ValueError(f"output must be (states,) = {(states,)}; got {output.shape}")
    if ((output < 0) & (output != IGNORE)).any() or (output == IGNORE).all():
        raise ValueError(f"output must hold answers of at least 0, or IGNORE at some states; got {output.tolist()}")
    if not 0 <= start < states:
        raise ValueError(f"start must be a state, 0..{states - 1}; got {start}")
