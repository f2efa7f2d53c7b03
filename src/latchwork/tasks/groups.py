"""Running products in a group: of sums modulo m, of steps on a cycle, of permutations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations

import numpy

from latchwork.tasks.automaton import Automaton
from latchwork.tasks.task import Split

CYCLE = 5
STEPS = (0, 1, -1)  # what the tokens 0, 1, 2 of CycleNavigation do


class Cyclic(Automaton):
    """Tokens 0..m-1; the answer at every step is the sum of all so far, modulo m."""

    def __init__(self, m: int, *, splits: Mapping[str, Split] | None = None) -> None:
        if m < 2:
            raise ValueError(f"m must be at least 2; got {m}")
        numbers = numpy.arange(m)
        super().__init__((numbers[:, None] + numbers) % m, numbers, name=f"cyclic({m})", splits=splits)
        self.m = m

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """The sum, anew at each step."""
        return [sum(tokens[: t + 1]) % self.m for t in range(len(tokens))]


class Parity(Cyclic):
    """Bits; the answer at every step is 1 if the number of ones so far is odd."""

    def __init__(self, *, splits: Mapping[str, Split] | None = None) -> None:
        super().__init__(2, splits=splits)
        self.name = "parity"

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Count the ones, anew at each step."""
        return [list(tokens[: t + 1]).count(1) % 2 for t in range(len(tokens))]


class CycleNavigation(Automaton):
    """Tokens 0 stay, 1 forward, 2 back; the answer at every step is the position, 0..4, on a cycle of 5."""

    def __init__(self, *, splits: Mapping[str, Split] | None = None) -> None:
        positions = numpy.arange(CYCLE)
        successor = (positions[:, None] + numpy.array(STEPS)) % CYCLE
        super().__init__(successor, positions, name="cycle_navigation", splits=splits)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Steps forward less steps back, anew at each step."""
        words = [list(tokens[: t + 1]) for t in range(len(tokens))]
        return [(word.count(1) - word.count(2)) % CYCLE for word in words]


class WordProblem(Automaton):
    """The word problem of a group of permutations: token k is its k-th element, and so is an answer.

    group: "S3" to "S6", all permutations of 3 to 6 points, or "A3" to "A6", the even ones; in lexicographic order, so
    that 0 is the identity. What is read first acts first: after p_1 ... p_t the answer maps x to p_t(...p_1(x)...).
    """

    def __init__(self, group: str, *, splits: Mapping[str, Split] | None = None) -> None:
        if len(group) != 2 or group[0] not in "SA" or group[1] not in "3456":
            raise ValueError(f"group must be S3, S4, S5, S6, A3, A4, A5 or A6; got {group!r}")
        self.elements = [p for p in permutations(range(int(group[1]))) if group[0] == "S" or _is_even(p)]
        points = numpy.array(self.elements)
        number = {p: k for k, p in enumerate(self.elements)}
        successor = [[number[tuple(row)] for row in points[:, state].tolist()] for state in points]
        super().__init__(successor, numpy.arange(len(points)), name=f"word_problem({group})", splits=splits)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Where does each point go? Let the permutations act on it one after the other, anew at each step."""
        answers = []
        for t in range(len(tokens)):
            images = []
            for point in range(len(self.elements[0])):
                for token in tokens[: t + 1]:
                    point = self.elements[token][point]
                images.append(point)
            answers.append(self.elements.index(tuple(images)))
        return answers


def _is_even(p: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in combinations(p, 2)) % 2 == 0
