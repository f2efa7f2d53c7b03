"""Labelled traces as numbers: sequences of symbols, each with one label or with one label for every step."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from latchwork.automata import Machine
from latchwork.tasks.task import IGNORE

Array = numpy.ndarray
Name = Hashable
ROWS = 1024  # traces that are run together


@dataclass(frozen=True)
class Names:
    """What the numbers stand for: symbol i is symbols[i], and output i is outputs[i].

    undecided: the number of the output that means "the traces do not say". Its name is None.
    """

    symbols: tuple[Name, ...]
    outputs: tuple[Name, ...]

    @property
    def undecided(self) -> int:
        """The output of a machine where the traces say nothing."""
        return len(self.outputs)

    def output(self, number: int) -> Name:
        """The name of an output; None for `undecided` and for every number beyond."""
        return self.outputs[number] if number < len(self.outputs) else None

    def encode(self, sequence: Sequence[Name], what: str = "sequence") -> Array:
        """The numbers of a sequence's symbols."""
        number = {symbol: k for k, symbol in enumerate(self.symbols)}
        try:
            return numpy.array([number[symbol] for symbol in sequence], numpy.int64)
        except KeyError as error:
            known = ", ".join(map(repr, self.symbols))
            raise ValueError(
                f"{what} must hold symbols of the alphabet, {known:.200}; got {error.args[0]!r:.80}"
            ) from None
        except TypeError as error:
            raise TypeError(f"{what} must hold symbols that can be hashed: {error}") from None


@dataclass(frozen=True)
class Traces:
    """Traces as arrays of numbers.

    tokens: for each trace its symbols. targets: for each trace one label for every step, IGNORE where there is none.
    per_step: whether the labels were given for every step; otherwise the last step alone has one.
    """

    tokens: list[Array]
    targets: list[Array]
    per_step: bool

    def __len__(self) -> int:
        """How many traces there are."""
        return len(self.tokens)

    @property
    def steps(self) -> int:
        """All steps of all traces."""
        return sum(map(len, self.tokens))

    def take(self, places: Iterable[int]) -> Traces:
        """The traces at these places."""
        places = list(places)
        return Traces([self.tokens[k] for k in places], [self.targets[k] for k in places], self.per_step)

    def some(self, share: float, steps: int) -> Traces:
        """No more than this many steps, but at least one trace: of the shortest share, or drawn evenly if that is 1."""
        if share == 1:
            order = numpy.random.default_rng(0).permutation(len(self))
        else:
            order = numpy.argsort([len(each) for each in self.tokens], kind="stable")
            order = order[: max(1, round(share * len(order)))]
        total = numpy.cumsum([len(self.tokens[k]) for k in order])
        return self.take(order[: max(1, int((total <= steps).sum()))].tolist())

    def batches(self) -> Iterable[tuple[Array, Array, Array]]:
        """Places, tokens and targets, (rows, steps) each, of traces of similar length; padded by 0 and IGNORE."""
        order = numpy.argsort([len(each) for each in self.tokens], kind="stable")
        for first in range(0, len(order), ROWS):
            places = order[first : first + ROWS]
            longest = len(self.tokens[places[-1]])
            tokens, targets = numpy.zeros((len(places), longest), int), numpy.full((len(places), longest), IGNORE)
            for row, place in enumerate(places):
                tokens[row, : len(self.tokens[place])] = self.tokens[place]
                targets[row, : len(self.tokens[place])] = self.targets[place]
            yield places, tokens, targets


@dataclass(frozen=True)
class Score:
    """How a machine does on traces: labels that it gives right, labels that there are, traces right and in all."""

    right: int
    asked: int
    traces_right: int
    traces: int

    @property
    def accuracy(self) -> float:
        """The share of labels that are right; 1 where there are none."""
        return self.right / self.asked if self.asked else 1.0


def score(machine: Machine, traces: Traces) -> tuple[Score, list[int]]:
    """How a machine does, and the places of the traces that it contradicts in at least one label."""
    right = asked = 0
    wrong: list[int] = []
    for places, tokens, targets in traces.batches():
        kept = targets != IGNORE
        hits = (machine.run(tokens) == targets) & kept
        right, asked = right + int(hits.sum()), asked + int(kept.sum())
        wrong += places[(hits != kept).any(1)].tolist()
    return Score(right, asked, len(traces) - len(wrong), len(traces)), sorted(wrong)


def split(traces: Traces, share: float, random: numpy.random.Generator) -> tuple[Traces, Traces]:
    """The traces without a share of them drawn at random, and that share; each has at least one trace."""
    order = random.permutation(len(traces))
    cut = min(max(round(share * len(order)), 1), len(order) - 1)
    return traces.take(sorted(order[cut:].tolist())), traces.take(sorted(order[:cut].tolist()))


def read(
    sequences: Iterable[Sequence[Name]],
    labels: Iterable[Any],
    alphabet: Iterable[Name] | None,
    outputs: Iterable[Name] | None,
) -> tuple[Names, Traces]:
    """Names and numbers of what `learn` was given. Labels that are lists or arrays are one for each step."""
    if isinstance(sequences, (str, bytes)) or isinstance(labels, (str, bytes)):
        raise TypeError("sequences and labels must be lists of sequences and of labels; got a text")
    words, given = [_items(each, f"sequences[{k}]") for k, each in enumerate(sequences)], list(labels)
    if not words:
        raise ValueError("sequences must hold at least one sequence; got none")
    if len(words) != len(given):
        raise ValueError(f"labels must be as many as sequences, {len(words)}; got {len(given)}")
    per_step = isinstance(given[0], (list, numpy.ndarray))
    steps: list[list[Any]] = []
    for k, (word, label) in enumerate(zip(words, given, strict=True)):
        if not word:
            raise ValueError(f"sequences[{k}] must hold at least one symbol; it is empty")
        if isinstance(label, (list, numpy.ndarray)) != per_step:
            raise ValueError(f"labels must all be lists, one label a step, or none; labels[{k}] is {label!r:.80}")
        own = _items(label, f"labels[{k}]") if per_step else [None] * (len(word) - 1) + [_plain(label)]
        if len(own) != len(word):
            raise ValueError(f"labels[{k}] must be {len(word)} labels, one a step; got {len(own)}")
        steps.append(own)
    symbols = _names("alphabet", alphabet, (symbol for word in words for symbol in word))
    answers = _names("outputs", outputs, (label for own in steps for label in own if label is not None))
    if not answers:
        raise ValueError("labels must hold at least one label that is not None; got none")
    names = Names(symbols, answers)
    number = {label: k for k, label in enumerate(answers)} | {None: IGNORE}
    tokens = [names.encode(word, f"sequences[{k}]") for k, word in enumerate(words)]
    try:
        targets = [numpy.array([number[label] for label in own], numpy.int64) for own in steps]
    except KeyError as error:
        raise ValueError(f"labels must be among outputs, {answers!r:.200}; got {error.args[0]!r:.80}") from None
    return names, Traces(tokens, targets, per_step)


def _items(values: Any, name: str) -> list[Any]:
    if isinstance(values, numpy.ndarray):
        if values.ndim != 1:
            raise ValueError(f"{name} must be a sequence; got an array of shape {values.shape}")
        return list(values.tolist())
    try:
        return [_plain(each) for each in values]
    except TypeError:
        raise TypeError(f"{name} must be a sequence; got {values!r:.80}") from None


def _plain(value: Any) -> Any:
    """Numpy's scalars as Python's, so that names can be written to a file."""
    return value.item() if isinstance(value, numpy.generic) else value


def _names(argument: str, given: Iterable[Name] | None, seen: Iterable[Name]) -> tuple[Name, ...]:
    """The names given, or those seen, sorted if they can be."""
    if given is not None:
        names = tuple(_plain(each) for each in given)
        if len(set(names)) < len(names) or None in names:
            raise ValueError(f"{argument} must hold names that differ, and not None; got {names!r:.200}")
        return names
    try:
        found = set(seen)
    except TypeError as error:
        raise TypeError(
            f"{'sequences' if argument == 'alphabet' else 'labels'} must hold names that can be hashed: {error}"
        ) from None
    if any(each is None or each != each for each in found):
        raise ValueError(f"sequences must hold no None and no NaN; got {next(e for e in found if e is None or e != e)}")
    return in_order(found)


def in_order(names: Iterable[Name]) -> tuple[Name, ...]:
    """Names sorted, if they can be; otherwise by their type and text."""
    try:
        return tuple(sorted(names))  # type: ignore[type-var]
    except TypeError:
        return tuple(sorted(names, key=lambda each: (type(each).__name__, repr(each))))
