"""What a task is: sequences of tokens, and at each step the answer a model has to give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy
import torch
from torch import Tensor

from latchwork.machines import Machine

BLOCK = 512  # steps drawn at a time; part of what a seed means, so never to be changed
IGNORE = -100  # as a target: no answer is asked for at this step; torch's cross-entropy leaves it out
NEVER = -1  # in a table of successors: this token may not come here

MOST_ENTRIES = 1 << 25  # of a table with a row for each state and a column for each letter: 256 MB

Array = numpy.ndarray
Random = Callable[[str, int], numpy.random.Generator]


def check_table(name: str, states: int, letters: int) -> None:
    """Refuse a machine whose table would fill the memory, before it is made."""
    if states * letters > MOST_ENTRIES:
        raise ValueError(
            f"{name} is too large: {states:,} states and {letters:,} letters make {states * letters:,} entries of a "
            f"table, which may have {MOST_ENTRIES:,}"
        )


def make_machine(
    task: Task,
    transitions: Array,
    outputs: Array,
    start: int = 0,
    symbol_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Machine:
    """The machine of a task's tables, (states, tokens) each. A token that may not come leads to NEVER, a state below 0.

    Where no answer is asked for, which the output IGNORE says, the machine's output is `task.vocabulary`. A token that
    may not come leads to a state of its own, which is never left and where no answer is asked for.
    """
    never = transitions < 0
    outputs = numpy.where(never | (outputs == IGNORE), task.vocabulary, outputs)
    if never.any():
        states, symbols = transitions.shape
        transitions = numpy.vstack([numpy.where(never, states, transitions), numpy.full((1, symbols), states)])
        outputs = numpy.vstack([outputs, numpy.full((1, symbols), task.vocabulary)])
    return Machine.from_table(transitions, outputs, start, symbol_names=symbol_names, output_names=output_names)


class Batch(NamedTuple):
    """Tokens (B, T) and their answers (B, T), int64. Where an answer is IGNORE none is asked for."""

    tokens: Tensor
    targets: Tensor


@dataclass(frozen=True, kw_only=True)
class Split:
    """One of a task's data sets: how many sequences, and how long; a length is drawn evenly from shortest..longest."""

    sequences: int
    shortest: int
    longest: int


class Task(ABC):
    """A seeded sampler with its oracle.

    name: as `make_task` takes it. vocabulary: the number of tokens, inputs and answers together. splits: the data sets
    a model is trained, validated and evaluated on. pad: the token after the end of a sequence shorter than its batch.

    A task draws the randomness of each block of 512 steps from a generator of its own, so that a sequence cut
    into chunks has the content of the whole, and nothing is ever on disk.
    """

    name: str
    vocabulary: int
    splits: Mapping[str, Split]
    pad: int = 0

    def __repr__(self) -> str:
        """One line: the class, the name that `make_task` takes, and the number of tokens."""
        return f"{type(self).__name__}({self.name!r}, vocabulary={self.vocabulary})"

    @abstractmethod
    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """Tokens and answers, (rows, BLOCK) each, block after block without end.

        lengths: (rows,), where each sequence ends. random: a generator for a purpose, a word and a number.
        """

    @abstractmethod
    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """The answers to one sequence, by the definition: slow and obvious. IGNORE where none is asked for."""

    def machine(self) -> Machine:
        """The machine whose output at each step is the task's answer.

        Its symbols are the tokens that may come in the task's words. Where the task asks for no answer the output is
        `vocabulary`, which is no token; so is every output from a token on that the task never draws there.
        >>> from latchwork.tasks import make_task
        >>> make_task("parity").machine().run([[1, 1, 1]])
        array([[1, 0, 1]])
        >>> make_task("fflm(0.8)").machine().run([[2, 1, 4, 0, 3, 1, 0, 3]])  # ends with two mistakes
        array([[5, 5, 5, 5, 1, 5, 5, 5]])
        """
        raise ValueError(f"the task {type(self).__name__} says no machine(): it is not known to be a finite machine")

    def sample(self, split: str, seed: int, rows: int | None = None, length: int | None = None) -> Batch:
        """Draw `rows` sequences, by default the whole split; `length` steps each, by default drawn from the split."""
        lengths = self._lengths(split, seed, rows, length)
        shape = len(lengths), int(lengths.max(initial=0))
        tokens, targets = numpy.empty(shape, numpy.int64), numpy.empty(shape, numpy.int64)
        for first, block_tokens, block_targets in self._blocks(split, seed, lengths):
            steps = slice(first, first + block_tokens.shape[1])
            tokens[:, steps], targets[:, steps] = block_tokens, block_targets
        return Batch(torch.from_numpy(tokens), torch.from_numpy(targets))

    def stream(
        self, split: str, seed: int, rows: int | None = None, length: int | None = None, chunk: int = BLOCK
    ) -> Iterator[Batch]:
        """What `sample` returns, `chunk` steps at a time and in constant memory."""
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1; got {chunk}")
        held, width = [], 0
        for _, *block in self._blocks(split, seed, self._lengths(split, seed, rows, length)):
            held.append(block)
            width += block[0].shape[1]
            if width >= chunk:
                tokens, targets = (numpy.concatenate(each, 1) for each in zip(*held, strict=True))
                ends = range(chunk, width + 1, chunk)
                for end in ends:
                    yield _batch(tokens[:, end - chunk : end], targets[:, end - chunk : end])
                held, width = [[tokens[:, ends[-1] :], targets[:, ends[-1] :]]], width - ends[-1]
        if width:
            yield _batch(*(numpy.concatenate(each, 1) for each in zip(*held, strict=True)))

    def best_constant(self, split: str, seed: int = 0, rows: int = 64, length: int | None = None) -> float:
        """The accuracy of the best answer that never changes, counted on `rows` sequences."""
        counts = numpy.zeros(self.vocabulary, numpy.int64)
        for batch in self.stream(split, seed, rows, length):
            counts += torch.bincount(batch.targets[batch.targets != IGNORE], minlength=self.vocabulary).numpy()
        return float(counts.max() / max(counts.sum(), 1))

    def expected_constant(self, split: str, length: int) -> float:
        """The accuracy to expect of the best constant answer over `length` steps; here counted on 256 sequences."""
        return self.best_constant(split, rows=256, length=length)

    def _blocks(self, split: str, seed: int, lengths: Array) -> Iterator[tuple[int, Array, Array]]:
        """The first step of each block up to the longest sequence, its tokens and answers, cut at the ends."""
        longest, shortest = int(lengths.max(initial=0)), int(lengths.min(initial=0))
        for first, (tokens, targets) in zip(
            range(0, longest, BLOCK), self.blocks(split, lengths, _random(split, seed)), strict=False
        ):
            tokens, targets = tokens[:, : longest - first], targets[:, : longest - first]
            if first + BLOCK > shortest:
                beyond = numpy.arange(first, first + tokens.shape[1]) >= lengths[:, None]
                tokens = numpy.where(beyond, tokens.dtype.type(self.pad), tokens)
                kind = numpy.int16 if self.vocabulary < 1 << 15 else numpy.int64
                targets = numpy.where(beyond, kind(IGNORE), targets.astype(kind))
            yield first, tokens, targets

    def _lengths(self, split: str, seed: int, rows: int | None, length: int | None) -> Array:
        if split not in self.splits:
            raise ValueError(f"split must be one of {', '.join(self.splits)}; got {split!r}")
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"seed must be an integer of at least 0; got {seed!r}")
        sizes = self.splits[split]
        rows = sizes.sequences if rows is None else rows
        if rows < 0:
            raise ValueError(f"rows must be at least 0; got {rows}")
        if length is not None:
            if length < 1:
                raise ValueError(f"length must be at least 1; got {length}")
            return numpy.full(rows, length)
        return _random(split, seed)("length", 0).integers(sizes.shortest, sizes.longest, rows, endpoint=True)


def _batch(tokens: Array, targets: Array) -> Batch:
    return Batch(*(torch.from_numpy(each.astype(numpy.int64)) for each in (tokens, targets)))


def _random(split: str, seed: int) -> Random:
    def random(purpose: str, number: int) -> numpy.random.Generator:
        key = (crc32(split.encode()), crc32(purpose.encode()), number)
        return numpy.random.Generator(numpy.random.SFC64(numpy.random.SeedSequence(seed, spawn_key=key)))

    return random
