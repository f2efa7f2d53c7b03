"""A task that asks only for the last answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from latchwork.tasks.task import BLOCK, IGNORE, Array, Random, Task


class LastStep(Task):
    """The sequences of another task; an answer is asked for at the last step of each alone.

    Lengths vary where the other task's do: at one length alone, what is not counted can be counted instead.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.name, self.splits = f"last_step({task.name})", task.splits
        self.vocabulary, self.pad = task.vocabulary, task.pad

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """Those of the task, all answers but one taken out."""
        for block, (tokens, targets) in enumerate(self.task.blocks(split, lengths, random)):
            last = numpy.arange(block * BLOCK, block * BLOCK + targets.shape[1]) == lengths[:, None] - 1
            yield tokens, numpy.where(last, targets.astype(numpy.int64), IGNORE)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """The task's, its last answer alone."""
        answers = self.task.oracle(tokens)
        return [IGNORE] * (len(answers) - 1) + answers[-1:]
