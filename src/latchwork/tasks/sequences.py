"""Sequences(n): which of two sequences of n events have been seen, and not reset since their first event?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Literal

import numpy

from latchwork.machines import Machine
from latchwork.tasks.automaton import run
from latchwork.tasks.latching import SPLITS
from latchwork.tasks.task import BLOCK, Array, Random, Task, check_table, make_machine

KINDS = 2  # sequences to match
TOKENS = 2  # that stand for one event
OTHERS = 10  # irrelevant tokens
PROBABILITIES = {"train": (0.5, 0.02), "validation": (0.3, 0.002), "evaluation": (1e-5, 1e-6)}  # of a set, of a reset
ROUNDS = 16  # of being matched and reset, about, in one long sequence of the balanced variant
SLAB = 128  # rows drawn at a time

Variant = Literal["defined", "published", "balanced"]


class Sequences(Task):
    """The answer at every step is the set of the sequences that are matched, as one of 4 tokens.

    Tokens: set(k, l, m), event l of sequence k, is (k n + l) 2 + m; then reset(k, m); 10 irrelevant ones; 4 answers.

    variant:
    "defined": the paper's text.
    "published": what its figures were measured on. No reset is ever drawn, and two events match, whatever n is.
    "balanced": the paper's text, with probabilities for which no answer is right more than half of the time.
    """

    splits = SPLITS

    def __init__(self, n: int, variant: Variant = "defined") -> None:
        if n < 1 or (variant == "published" and n < 2):
            raise ValueError(f"n must be at least 1, and 2 as published; got {n}")
        if variant not in ("defined", "published", "balanced"):
            raise ValueError(f"variant must be 'defined', 'published' or 'balanced'; got {variant!r}")
        self.name, self.n, self.variant = f"sequences({n}, {variant})", n, variant
        self.events = 2 if variant == "published" else n
        self.resets = KINDS * n * TOKENS  # the first reset token; then the irrelevant ones, then the answers
        self.others = self.resets + KINDS * TOKENS
        self.answers = self.others + OTHERS
        self.vocabulary = self.answers + 2**KINDS

    def probabilities(self, split: str) -> tuple[float, float]:
        """Of a set and of a reset token at each step."""
        if self.variant == "balanced":
            return balanced(self.n, split)
        p_set, p_reset = PROBABILITIES[split]
        return (p_set, 0.0) if self.variant == "published" else (p_set, p_reset)

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """Independent draws, and an automaton that counts how far each sequence has got."""
        p_set, p_reset = self.probabilities(split)
        successor, answer = self.automaton()
        state = numpy.zeros(len(lengths), numpy.int64)
        shape = (len(lengths), BLOCK)
        kind = numpy.uint8 if self.vocabulary <= 256 else numpy.uint16
        answer = answer.astype(kind)
        for block in count():
            generator = random("tokens", block)
            is_set, is_reset = numpy.empty(shape, bool), numpy.empty(shape, bool)
            for first in range(0, len(lengths), SLAB):  # slabs stay in the cache
                rows = slice(first, first + SLAB)
                u = generator.random(is_set[rows].shape)
                numpy.less(u, p_set, out=is_set[rows])
                numpy.less(u, p_set + p_reset, out=is_reset[rows])
            is_reset ^= is_set
            sets, resets = numpy.flatnonzero(is_set), numpy.flatnonzero(is_reset)
            tokens = generator.integers(self.others, self.answers, shape, kind)
            tokens.ravel()[sets] = generator.integers(0, self.resets, len(sets), kind)
            tokens.ravel()[resets] = generator.integers(self.resets, self.others, len(resets), kind)
            answers, state = run(successor, answer, state, tokens)
            yield tokens, answers

    def automaton(self) -> tuple[Array, Array]:
        """The successor of each state at each token, and each state's answer. A state counts the events seen."""
        steps = self.events + 1
        progress = numpy.arange(steps**KINDS)
        successor = numpy.tile(progress[:, None], (1, self.vocabulary))
        answer = numpy.full(steps**KINDS, self.answers, numpy.uint16)
        for kind in range(KINDS):
            unit = steps**kind
            seen = progress // unit % steps
            for event in range(self.events):
                first = (kind * self.n + event) * TOKENS
                successor[seen == event, first : first + TOKENS] += unit
            first = self.resets + kind * TOKENS
            successor[:, first : first + TOKENS] -= (seen * unit)[:, None]
            answer += (seen == self.events).astype(numpy.uint16) << kind
        return successor, answer

    def machine(self) -> Machine:
        """The automaton. The answers are tokens too, but never come."""
        check_table(self.name, (self.events + 1) ** KINDS, self.vocabulary)
        successor, answer = self.automaton()
        successor = successor[:, : self.answers]
        return make_machine(self, successor, answer.astype(int)[successor])

    def expected_constant(self, split: str, length: int) -> float:
        """Of the answer that takes the largest share of the steps."""
        return float(self.shares(split, length).max())

    def shares(self, split: str, length: int) -> Array:
        """How much of `length` steps each of the four answers takes, on average: the automaton's chain, exactly."""
        p_set, p_reset = self.probabilities(split)
        chances = numpy.zeros(self.vocabulary)
        chances[: self.resets] = p_set / self.resets
        chances[self.resets : self.others] = p_reset / (self.others - self.resets)
        chances[self.others : self.answers] = (1 - p_set - p_reset) / OTHERS
        successor, answer = self.automaton()
        states = len(successor)
        chain = numpy.zeros((states, states))
        for token, chance in enumerate(chances):
            chain[numpy.arange(states), successor[:, token]] += chance
        power, total = chain, chain  # chain^k, and chain^1 + ... + chain^k, for k = 1, then doubled bit by bit
        for bit in bin(length)[3:]:
            power, total = power @ power, total + power @ total
            if bit == "1":
                power, total = power @ chain, chain + chain @ total
        return numpy.bincount(answer - self.answers, total[0] / length, minlength=2**KINDS)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """By the definition: events t_1 < ... < t_n <= t, and no reset in t_1 < t' <= t."""
        return [
            self.answers + sum(2**kind for kind in range(KINDS) if self._is_matched(kind, tokens[: t + 1]))
            for t in range(len(tokens))
        ]

    def _is_matched(self, kind: int, tokens: Sequence[int]) -> bool:
        resets = range(self.resets + kind * TOKENS, self.resets + (kind + 1) * TOKENS)
        last = max((t for t, token in enumerate(tokens) if token in resets), default=-1)
        remaining = iter(tokens[last + 1 :])
        for event in range(self.events):
            first = (kind * self.n + event) * TOKENS
            if not any(token in range(first, first + TOKENS) for token in remaining):  # goes on after the one before it
                return False
        return True


@cache
def balanced(n: int, split: str) -> tuple[float, float]:
    """Probabilities of a set and a reset for which a sequence is matched half of the time, on average over the split.

    Two sequences are then matched in each of the four ways about a quarter of the time. A set is as likely as in the
    paper where the sequences are short; over 2^20 steps so likely that there are about 16 rounds.
    """
    sizes = Sequences.splits[split]
    mean = (sizes.shortest + sizes.longest) // 2
    least = PROBABILITIES[split][0] if split != "evaluation" else ROUNDS * KINDS * n * n / mean
    for p_set in (least, 0.6, 0.7, 0.8, 0.9, 0.95):
        if p_set >= least and _matched(n, p_set, 0.0, mean) >= 0.5:
            low, high = 0.0, 1 - p_set
            for _ in range(40):
                p_reset = (low + high) / 2
                low, high = (p_reset, high) if _matched(n, p_set, p_reset, mean) > 0.5 else (low, p_reset)
            return p_set, high
    raise ValueError(
        f"variant 'balanced' is not possible for n = {n}: {n} events are seldom seen in {mean} steps of {split!r}"
    )


def _matched(n: int, p_set: float, p_reset: float, length: int) -> float:
    """The share of `length` steps at which one sequence is matched, on average: the chain of its progress, exactly."""
    forward, back = p_set / (KINDS * n), p_reset / KINDS
    chain = numpy.zeros((n + 1, n + 1))
    for seen in range(n + 1):
        chain[seen, 0] += back
        onward = forward if seen < n else 0.0
        chain[seen, min(seen + 1, n)] += onward
        chain[seen, seen] += 1 - back - onward
    # [chain, 1; 0, 1]^length holds the sum of the chain's powers
    wide = numpy.block([[chain, numpy.eye(n + 1)], [numpy.zeros((n + 1, n + 1)), numpy.eye(n + 1)]])
    powers = numpy.linalg.matrix_power(wide, length)[: n + 1, n + 1 :]  # sum over t = 0 .. length - 1
    return float((powers @ chain)[0, n] / length)
