"""Membership in a regular language, asked at every step: even pairs, Tomita's seven, any regular expression."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

import numpy

from latchwork.machines import ACCEPTANCE, Machine
from latchwork.machines.expression import automaton, letters
from latchwork.tasks.automaton import Automaton
from latchwork.tasks.task import Split

TOMITA = {  # successors at 0 and at 1 of each state; the states that accept
    1: ([(1, 0), (1, 1)], {0}),
    2: ([(2, 1), (0, 2), (2, 2)], {0}),
    3: ([(0, 1), (2, 0), (3, 4), (2, 3), (4, 4)], {0, 1, 3}),
    4: ([(1, 0), (2, 0), (3, 0), (3, 3)], {0, 1, 2}),
    5: ([(1, 2), (0, 3), (3, 0), (2, 1)], {0}),
    6: ([(2, 1), (0, 2), (1, 0)], {0}),
    7: ([(0, 1), (2, 1), (2, 3), (4, 3), (4, 4)], {0, 1, 2, 3}),
}


class EvenPairs(Automaton):
    """Bits; the answer at every step is 1 if 01 and 10 together have come an even number of times.

    That is if the first bit equals the last.
    """

    def __init__(self, *, splits: Mapping[str, Split] | None = None) -> None:
        successor = [(1, 3), (1, 2), (1, 2), (4, 3), (4, 3)]  # nothing; 0..0, 0..1, 1..1, 1..0
        super().__init__(successor, [1, 1, 0, 1, 0], name="even_pairs", splits=splits)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Count the changes from the start at each step."""
        words = [tokens[: t + 1] for t in range(len(tokens))]
        return [int(sum(a != b for a, b in pairwise(word)) % 2 == 0) for word in words]


class Tomita(Automaton):
    """Tomita's language of that number; the answer at every step is 1 if what has been read belongs to it.

    1: 1*. 2: (10)*. 3: no odd run of 0 anywhere after an odd run of 1. 4: no 000. 5: an even number of 0 and of 1.
    6: the number of 1 less that of 0 is a multiple of 3. 7: 0*1*0*1*.
    """

    def __init__(self, number: int, *, splits: Mapping[str, Split] | None = None) -> None:
        if number not in TOMITA:
            raise ValueError(f"number must be 1 to 7; got {number}")
        successor, accepting = TOMITA[number]
        output = [int(state in accepting) for state in range(len(successor))]
        super().__init__(successor, output, name=f"tomita({number})", splits=splits, output_names=ACCEPTANCE)
        self.number = number

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """The definition, applied to the whole prefix at each step."""
        words = ["".join(str(token) for token in tokens[: t + 1]) for t in range(len(tokens))]
        return [int(_in_tomita(self.number, word)) for word in words]


def _in_tomita(number: int, word: str) -> bool:
    zeros, ones = word.count("0"), word.count("1")
    runs = [(bit, len(list(run)) % 2 == 1) for bit, run in groupby(word)]
    odd = "".join(bit for bit, is_odd in runs if is_odd)
    return (
        re.fullmatch("1*", word) is not None,
        re.fullmatch("(10)*", word) is not None,
        "10" not in odd,
        "000" not in word,
        zeros % 2 == 0 and ones % 2 == 0,
        (ones - zeros) % 3 == 0,
        re.fullmatch("0*1*0*1*", word) is not None,
    )[number - 1]


class Regular(Automaton):
    """Membership in the language of a regular expression; the answer at every step is 1 if what has been read matches.

    pattern: as Python's `re.fullmatch` reads it; see `Machine.from_regex`. alphabet: the letters, token 0 first; by
    default those that the pattern names, sorted. A language that few words belong to has a good constant answer: see
    `best_constant`.
    """

    def __init__(self, pattern: str, alphabet: str | None = None, *, splits: Mapping[str, Split] | None = None) -> None:
        self.pattern, self.alphabet = pattern, letters(pattern) if alphabet is None else alphabet
        successor, accepts = automaton(pattern, self.alphabet)
        smallest = Machine(successor, numpy.repeat(accepts[:, None], len(self.alphabet), 1)).minimise()
        name = f"regular({pattern})" if self.alphabet == letters(pattern) else f"regular({pattern}, {self.alphabet})"
        super().__init__(
            smallest.transitions,
            smallest.outputs[:, 0],
            name=name,
            splits=splits,
            symbol_names=self.alphabet,
            output_names=ACCEPTANCE,
        )

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Ask Python's `re` about each prefix: its time may be exponential, as for (a|a)*."""
        word, expression = "".join(self.alphabet[token] for token in tokens), re.compile(self.pattern)
        return [int(expression.fullmatch(word[: t + 1]) is not None) for t in range(len(tokens))]
