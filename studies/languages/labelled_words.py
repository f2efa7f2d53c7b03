"""Labelled words of a language, as MLRegTest has them: half of them in it, drawn evenly from all words of a length.

Adversarial words come in pairs, one in the language and one outside it, one edit apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy

from latchwork.machines import Machine

Array = numpy.ndarray
Random = numpy.random.Generator
ROUNDS = 50  # of drawing, after which there are as many words as were found
EDITS = 32  # tried on each word of a pair


class Words(NamedTuple):
    """tokens: (B, T), filled up by 0. lengths and labels: (B,), 1 for a word of the language."""

    tokens: Array
    lengths: Array
    labels: Array


def even_words(machine: Machine, random: Random, length: int, label: int, rows: int) -> Array:
    """Words (rows, length) with this label, each word as likely as any other; no rows where there are no such words."""
    ends = machine.outputs == label
    ways = [
        ends.sum(1) / machine.n_symbols
    ]  # the share of words of 1, 2, ... more letters that end so, from each state
    for _ in range(length - 1):
        more = ways[-1][machine.transitions].sum(1)
        ways.append(more / max(more.max(), 1e-300))
    if ways[-1][machine.start] == 0:
        return numpy.zeros((0, length), int)
    tokens, state = numpy.zeros((rows, length), int), numpy.full(rows, machine.start)
    for step in range(length):
        left = length - 1 - step
        weights = ways[left - 1][machine.transitions[state]] if left else ends[state].astype(float)
        heights = weights.cumsum(1)
        tokens[:, step] = (random.random(rows)[:, None] * heights[:, -1:] < heights).argmax(1)
        state = machine.transitions[state, tokens[:, step]]
    return tokens


def labels_of(machine: Machine, words: Sequence[Array]) -> Words:
    """The words, filled up, with their labels."""
    lengths = numpy.array([len(word) for word in words], int)
    tokens = numpy.zeros((len(words), int(lengths.max(initial=1))), int)
    for row, word in zip(tokens, words, strict=True):
        row[: len(word)] = word
    said = machine.run(tokens)
    return Words(tokens, lengths, said[numpy.arange(len(words)), lengths - 1] if len(words) else lengths)


def random_set(
    machine: Machine, random: Random, lengths: Sequence[int], rows: int, apart: frozenset[bytes] = frozenset()
) -> Words:
    """About `rows` words, as many of each length and label; none whose `key` is in `apart`."""
    share, found = -(-rows // (2 * len(lengths))), list[Array]()
    for length in lengths:
        for label in (0, 1):
            kept: list[Array] = []
            for _ in range(ROUNDS):
                drawn = even_words(machine, random, length, label, share)
                kept += [word for word in drawn if key(word) not in apart]
                if len(kept) >= share or not len(drawn):
                    break
            found += kept[:share]
    return labels_of(machine, [found[place] for place in random.permutation(len(found))])


def adversarial_set(machine: Machine, random: Random, lengths: Sequence[int], rows: int) -> Words:
    """About `rows` words in pairs with different labels, one edit apart; the first is even, in or out of the language.

    An edit puts in, takes out or changes one letter, and stays within the lengths.
    """
    found: list[Array] = []
    for number in range(ROUNDS):
        for length in lengths:
            bases = even_words(machine, random, length, number % 2, -(-rows // (2 * len(lengths))))
            tries = [edit(word, random, machine.n_symbols, lengths) for word in bases for _ in range(EDITS)]
            said = labels_of(machine, tries).labels.reshape(-1, EDITS)
            for row, flips in enumerate(said != number % 2):
                if flips.any():
                    found += [bases[row], tries[row * EDITS + int(flips.argmax())]]
        if number % 2 and len(found) >= rows:
            break
    pairs = random.permutation(len(found) // 2)[: rows // 2]
    return labels_of(machine, [found[2 * pair + side] for pair in pairs for side in (0, 1)])


def edit(word: Array, random: Random, letters: int, lengths: Sequence[int]) -> Array:
    """The word with one letter more, fewer or another, of a length within those given."""
    kinds = [kind for kind, change in enumerate((-1, 0, 1)) if min(lengths) <= len(word) + change <= max(lengths)]
    kind, place = kinds[random.integers(len(kinds))], int(random.integers(len(word)))
    if kind == 0:
        return numpy.delete(word, place)
    if kind == 1:
        other = word.copy()
        other[place] = (word[place] + random.integers(1, letters)) % letters
        return other
    return numpy.insert(word, random.integers(len(word) + 1), random.integers(letters))


def key(word: Array) -> bytes:
    """What tells words apart."""
    return word.astype(numpy.int16).tobytes()
