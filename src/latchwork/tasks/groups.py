"""Running products: of sums modulo m, of steps on a cycle, of permutations, of maps of a set into itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations, product
from math import prod

import numpy

from latchwork.tasks.automaton import Automaton
from latchwork.tasks.task import Split, check_table

CYCLE = 5
DRAWS = 1000  # of random elements, until some generate a group
STEPS = (0, 1, -1)  # what the tokens 0, 1, 2 of CycleNavigation do


class Cyclic(Automaton):
    """Tokens 0..m-1; the answer at every step is the sum of all so far, modulo m."""

    def __init__(self, m: int, *, splits: Mapping[str, Split] | None = None) -> None:
        if m < 2:
            raise ValueError(f"m must be at least 2; got {m}")
        check_table(f"cyclic({m})", m, m)
        numbers = numpy.arange(m)
        super().__init__((numbers[:, None] + numbers) % m, numbers, name=f"cyclic({m})", splits=splits)
        self.m = m

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """The sum, computed from the start at each step."""
        return [sum(tokens[: t + 1]) % self.m for t in range(len(tokens))]


class Parity(Cyclic):
    """Bits; the answer at every step is 1 if the number of ones so far is odd."""

    def __init__(self, *, splits: Mapping[str, Split] | None = None) -> None:
        super().__init__(2, splits=splits)
        self.name = "parity"

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Count the ones from the start at each step."""
        return [list(tokens[: t + 1]).count(1) % 2 for t in range(len(tokens))]


class CycleNavigation(Automaton):
    """Tokens 0 stay, 1 forward, 2 back; the answer at every step is the position, 0..4, on a cycle of 5."""

    def __init__(self, *, splits: Mapping[str, Split] | None = None) -> None:
        positions = numpy.arange(CYCLE)
        successor = (positions[:, None] + numpy.array(STEPS)) % CYCLE
        super().__init__(successor, positions, name="cycle_navigation", splits=splits)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Steps forward minus steps back, counted from the start at each step."""
        words = [list(tokens[: t + 1]) for t in range(len(tokens))]
        return [(word.count(1) - word.count(2)) % CYCLE for word in words]


class WordProblem(Automaton):
    """The word problem of a group of permutations: the answer at every step is the number of an element, the product.

    group: "S3" to "S6", all permutations of 3 to 6 points, or "A3" to "A6", the even ones; "D3" to "D9", the symmetries
    of a polygon, or "Z2" to "Z9", its rotations; or a product of those, as "A4xZ5". Elements are in lexicographic
    order, so that 0 is the identity. What is read first acts first: after p_1 ... p_t the answer maps x to
    p_t(...p_1(x)...).
    letters: what token k is. "all": the k-th element. A number, as "32": that many different elements, drawn at random
    from `seed` until they generate the group. For S3 to S6 also "generators", the exchange of the first two points and
    the rotation of all, or "swaps", every exchange of two.
    """

    def __init__(
        self, group: str, letters: str = "all", seed: int = 0, *, splits: Mapping[str, Split] | None = None
    ) -> None:
        factors = [_group(name, group) for name in group.split("x")]
        size = prod(len(each) for each in factors)
        check_table(f"word_problem({group})", size, size if letters == "all" else 1)
        self.elements = sorted(_side_by_side(each) for each in product(*factors))
        number = {p: k for k, p in enumerate(self.elements)}
        self.letters = [number[p] for p in _letters(group, letters, seed, self.elements)]
        points = numpy.array(self.elements)
        successor = [[number[tuple(row)] for row in points[self.letters][:, state].tolist()] for state in points]
        arguments = [group] if letters == "all" else [group, letters, *([str(seed)] if letters.isdecimal() else [])]
        name = f"word_problem({', '.join(arguments)})"
        super().__init__(successor, numpy.arange(len(points)), name=name, splits=splits)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Where does each point go? Apply the permutations to it one after the other, from the start at each step."""
        answers = []
        for t in range(len(tokens)):
            images = []
            for point in range(len(self.elements[0])):
                for token in tokens[: t + 1]:
                    point = self.elements[self.letters[token]][point]
                images.append(point)
            answers.append(self.elements.index(tuple(images)))
        return answers


class Transformations(Automaton):
    """Token k is the k-th of some maps of 0..points-1 into itself; the answer at every step is where they take 0.

    letters: 0 is every map there is, in lexicographic order, as in "transformations(3)", the monoid T3: permutations,
    resets to each point, and all between. Else that many maps, drawn at random from `seed`.
    """

    def __init__(
        self, points: int, letters: int = 0, seed: int = 0, *, splits: Mapping[str, Split] | None = None
    ) -> None:
        if not 2 <= points <= (4 if letters == 0 else 256):
            raise ValueError(f"points must be 2 to 256, and at most 4 where every map is a letter; got {points}")
        if letters < 0:
            raise ValueError(f"letters must be at least 0; got {letters}")
        check_table(f"transformations({points}, {letters})", points, letters)
        if letters:
            maps = numpy.random.default_rng(seed).integers(0, points, (letters, points))
            name = f"transformations({points}, {letters}, {seed})"
        else:
            maps, name = numpy.array(list(product(range(points), repeat=points))), f"transformations({points})"
        super().__init__(maps.T, numpy.arange(points), name=name, splits=splits)


Permutation = tuple[int, ...]


def _group(name: str, group: str) -> list[Permutation]:
    """The elements of one factor of the group, by its name."""
    kind, size = name[:1], name[1:]
    least, most = {"S": (3, 6), "A": (3, 6), "D": (3, 9), "Z": (2, 9)}.get(kind, (1, 0))
    if len(size) != 1 or not size.isdigit() or not least <= int(size) <= most:
        raise ValueError(
            f"group must be S3 to S6, A3 to A6, D3 to D9, Z2 to Z9, or a product such as A4xZ5; got {group!r}"
        )
    n = int(size)
    if kind in "SA":
        return [p for p in permutations(range(n)) if kind == "S" or _is_even(p)]
    turns = [tuple((point + turn) % n for point in range(n)) for turn in range(n)]
    return turns if kind == "Z" else turns + [turn[::-1] for turn in turns]


def _side_by_side(parts: Sequence[Permutation]) -> Permutation:
    """One permutation of all points, each part acting on points of its own."""
    points: list[int] = []
    for part in parts:
        points += [len(points) + image for image in part]
    return tuple(points)


def _letters(group: str, letters: str, seed: int, elements: list[Permutation]) -> list[Permutation]:
    if letters == "all":
        return elements
    if letters.isdecimal():
        return _draw_generators(group, int(letters), seed, elements)
    if letters not in ("generators", "swaps") or group[0] != "S" or len(group) != 2:
        raise ValueError(
            f"letters must be 'all', a number, or for S3 to S6 'generators' or 'swaps'; got {letters!r} for {group!r}"
        )
    identity = elements[0]
    swaps = [_swap(identity, a, b) for a, b in combinations(identity, 2)]
    return swaps if letters == "swaps" else [swaps[0], identity[1:] + identity[:1]]


def _draw_generators(group: str, count: int, seed: int, elements: list[Permutation]) -> list[Permutation]:
    """So many different elements that generate the group, drawn again until they do."""
    if not 1 <= count <= len(elements):
        raise ValueError(f"letters must be 1 to {len(elements)}, the elements of {group}; got {count}")
    random = numpy.random.default_rng(seed)
    for _ in range(DRAWS):
        drawn = [elements[k] for k in sorted(random.choice(len(elements), count, replace=False).tolist())]
        if len(_generated(drawn)) == len(elements):
            return drawn
    raise ValueError(f"letters must be a number of elements that generate {group}; {DRAWS} draws of {count} did not")


def _generated(generators: Sequence[Permutation]) -> set[Permutation]:
    """Every product of the generators."""
    found, new = set(generators), set(generators)
    while new:
        new = {tuple(p[point] for point in q) for p in generators for q in new} - found
        found |= new
    return found


def _swap(p: Permutation, a: int, b: int) -> Permutation:
    return tuple({a: b, b: a}.get(point, point) for point in p)


def _is_even(p: Permutation) -> bool:
    return sum(a > b for a, b in combinations(p, 2)) % 2 == 0
