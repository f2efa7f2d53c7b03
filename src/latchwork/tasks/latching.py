"""Latching(n): hold the first token, whatever comes after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Literal

import numpy

from latchwork.machines import Machine
from latchwork.tasks.task import BLOCK, NEVER, Array, Random, Split, Task, check_table, make_machine

EVALUATION_LENGTH = 1 << 20  # the paper writes "2^10 (about 1M)"
SPLITS = {
    "train": Split(sequences=20_000, shortest=256, longest=512),
    "validation": Split(sequences=1_000, shortest=1024, longest=2048),
    "evaluation": Split(sequences=1_000, shortest=EVALUATION_LENGTH, longest=EVALUATION_LENGTH),
}


class Latching(Task):
    """5 n tokens, the first n of them to be remembered. The answer at every step is the first token.

    distractors: after the first token come "others", the 4 n tokens that are never first (the paper's text), or "all"
    5 n (what its authors' code draws).
    """

    splits = SPLITS

    def __init__(self, n: int, distractors: Literal["others", "all"] = "others") -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1; got {n}")
        if distractors not in ("others", "all"):
            raise ValueError(f"distractors must be 'others' or 'all'; got {distractors!r}")
        self.name = f"latching({n})" if distractors == "others" else f"latching({n}, all)"
        self.n, self.distractors, self.vocabulary = n, distractors, 5 * n

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """Uniform draws; the first token is kept for the answers."""
        kind = numpy.uint8 if self.vocabulary <= 256 else numpy.uint16 if self.vocabulary <= 65536 else numpy.int64
        lowest = self.n if self.distractors == "others" else 0
        first = random("first", 0).integers(self.n, size=(len(lengths), 1)).astype(kind)
        answers = numpy.broadcast_to(first, (len(lengths), BLOCK))
        for block in count():
            tokens = random("tokens", block).integers(lowest, self.vocabulary, (len(lengths), BLOCK), kind)
            if block == 0:
                tokens[:, :1] = first
            yield tokens, answers

    def machine(self) -> Machine:
        """State 0 is the start, k + 1 holds token k."""
        check_table(self.name, self.n + 1, self.vocabulary)
        held = numpy.arange(1, self.n + 1)
        transitions = numpy.full((self.n + 1, self.vocabulary), NEVER)
        transitions[0, : self.n] = held
        transitions[1:, self.n if self.distractors == "others" else 0 :] = held[:, None]
        return make_machine(self, transitions, transitions - 1)

    def expected_constant(self, split: str, length: int) -> float:
        """One in n."""
        return 1 / self.n

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """The first token, again and again."""
        return [tokens[0] for _ in tokens]
