"""Traces as a task: what `learn_by_length` trains a network on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy
import torch

from latchwork.learning.traces import Traces
from latchwork.tasks import Task
from latchwork.tasks.task import IGNORE, Array, Batch, Random, Split


class TraceTask(Task):
    """Beginnings of traces where every step has a label; whole traces, each label as often, where the last one has.

    A batch of a length has beginnings of that length, or the traces that are not longer.
    """

    def __init__(self, traces: Traces, vocabulary: int) -> None:
        self.traces, self.name, self.vocabulary = traces, "traces", vocabulary
        self.lengths = numpy.array([len(each) for each in traces.tokens])
        self.order = numpy.argsort(self.lengths, kind="stable")
        self.longest = int(self.lengths.max())
        split = Split(sequences=len(traces), shortest=1, longest=self.longest)
        self.splits = {"train": split, "validation": split}
        self.last = numpy.array([int(each[-1]) for each in traces.targets])

    def sample(self, split: str, seed: int, rows: int | None = None, length: int | None = None) -> Batch:
        """Rows drawn at random; see Task."""
        random = numpy.random.default_rng((seed, rows or 0))
        steps = min(length or self.longest, self.longest)
        places = self._places(random, rows or len(self.lengths), steps)
        steps = min(steps, int(self.lengths[places].max())) if self.traces.per_step else int(self.lengths[places].max())
        tokens = numpy.zeros((len(places), steps), numpy.int64)
        targets = numpy.full((len(places), steps), IGNORE)
        for row, place in enumerate(places):
            word, labels = self.traces.tokens[place][:steps], self.traces.targets[place][:steps]
            tokens[row, : len(word)], targets[row, : len(word)] = word, labels
        if (targets == IGNORE).all():
            return self.sample(split, seed + 1, rows, (length or self.longest) * 2)
        return Batch(torch.from_numpy(tokens), torch.from_numpy(targets))

    def _places(self, random: numpy.random.Generator, rows: int, steps: int) -> Array:
        if self.traces.per_step:
            return random.integers(0, len(self.lengths), rows)
        enough = max(int((self.lengths <= steps).sum()), min(32, len(self.order)))
        near = self.order[:enough]
        labels = self.last[near]
        weight = 1 / numpy.bincount(labels)[labels]
        return random.choice(near, rows, p=weight / weight.sum())

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """There are none: traces have an end."""
        raise NotImplementedError("traces are drawn whole, by sample")

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Unknown: that is what is to be learnt."""
        raise NotImplementedError("traces have labels, and no definition")
