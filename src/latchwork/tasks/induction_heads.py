"""InductionHeads(n): at the second recall token, say what followed the first one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy

from latchwork.machines import Machine
from latchwork.tasks.latching import EVALUATION_LENGTH
from latchwork.tasks.task import BLOCK, IGNORE, NEVER, Array, Random, Split, Task, check_table, make_machine

LATEST = {"train": 30, "validation": 50, "evaluation": 50}  # the last step at which the first recall may come
SPLITS = {
    "train": Split(sequences=20_000, shortest=35, longest=512),
    "validation": Split(sequences=1_000, shortest=1024, longest=2048),
    "evaluation": Split(sequences=1_000, shortest=EVALUATION_LENGTH, longest=EVALUATION_LENGTH),
}


class InductionHeads(Task):
    """n tokens to recall, then `recall` = n and `pad` = n + 1. An answer is asked for at the last step alone."""

    splits = SPLITS

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1; got {n}")
        self.name, self.n, self.vocabulary = f"induction_heads({n})", n, n + 2
        self.recall, self.pad = n, n + 1

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """Uniform draws, with a recall at an early step of each row and one at its end."""
        if lengths.min(initial=3) < 3:
            raise ValueError(f"length must be at least 3: recall, a token, recall; got {lengths.min()}")
        rows = numpy.arange(len(lengths))
        early = random("recall", 0).integers(0, numpy.minimum(LATEST[split], lengths - 3), endpoint=True)
        recalled = random("recalled", 0).integers(self.n, size=len(lengths))
        kind = numpy.uint8 if self.vocabulary <= 256 else numpy.int64
        answer_kind = numpy.int16 if self.vocabulary < 1 << 15 else numpy.int64
        for block in count():
            tokens = random("tokens", block).integers(self.n, size=(len(lengths), BLOCK), dtype=kind)
            answers = numpy.full((len(lengths), BLOCK), IGNORE, answer_kind)
            for steps, values in ((early, self.recall), (early + 1, recalled), (lengths - 1, self.recall)):
                here = (steps >= block * BLOCK) & (steps < (block + 1) * BLOCK)
                tokens[rows[here], steps[here] - block * BLOCK] = numpy.broadcast_to(values, steps.shape)[here]
            answers[rows[here], (lengths - 1)[here] - block * BLOCK] = recalled[here]
            yield tokens, answers

    def machine(self) -> Machine:
        """Before the first recall, just after it, k + 2 holds token k, and the end."""
        n, shape = self.n, (self.n + 3, self.vocabulary)
        check_table(self.name, *shape)
        held = numpy.arange(2, n + 2)
        transitions, outputs = numpy.full(shape, NEVER), numpy.full(shape, IGNORE)
        transitions[0, :n], transitions[0, self.recall] = 0, 1
        transitions[1, :n] = held
        transitions[2:-1, :n], transitions[2:-1, self.recall] = held[:, None], n + 2
        outputs[2:-1, self.recall] = numpy.arange(n)
        return make_machine(self, transitions, outputs)

    def expected_constant(self, split: str, length: int) -> float:
        """One in n."""
        return 1 / self.n

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Find the first recall; what follows it is the answer at the end."""
        return [IGNORE] * (len(tokens) - 1) + [tokens[list(tokens).index(self.recall) + 1]]
