"""Groups of permutations by their generators, and all transformations of a few points."""

from __future__ import annotations

from itertools import product

from latchwork.automata import Machine
from latchwork.tasks import make_task
from machine_cases import random_machine, semiautomaton


def permutation(points: int, *cycles) -> tuple[int, ...]:
    """In each cycle every point goes to the next one."""
    images = list(range(points))
    for cycle in cycles:
        for k, point in enumerate(cycle):
            images[point] = cycle[(k + 1) % len(cycle)]
    return tuple(images)


def symmetric(n: int) -> list[tuple[int, ...]]:
    return [permutation(n, range(n)), permutation(n, (0, 1))]


def alternating(n: int) -> list[tuple[int, ...]]:
    return [permutation(n, (0, 1, k)) for k in range(2, n)]


def dihedral(n: int) -> list[tuple[int, ...]]:
    return [permutation(n, range(n)), tuple(-k % n for k in range(n))]


def cyclic(n: int) -> list[tuple[int, ...]]:
    return [permutation(n, range(n))]


def side_by_side(one, other) -> list[tuple[int, ...]]:
    """The direct product, on the points of both."""
    m, n = len(one[0]), len(other[0])
    return [
        *((*each, *range(m, m + n)) for each in one),
        *((*range(m), *(m + point for point in each)) for each in other),
    ]


def transformations(n: int) -> Machine:
    """Symbols that generate all maps of n points."""
    return semiautomaton(*symmetric(n), [0, 0, *range(2, n)])


def elements(generators) -> set[tuple[int, ...]]:
    """All products, one after the other."""
    found = {tuple(range(len(generators[0])))}
    waiting = list(found)
    for here in waiting:
        for each in generators:
            after = tuple(each[point] for point in here)
            if after not in found:
                found.add(after)
                waiting.append(after)
    return found


AFFINE = [  # x -> x + 1, and two linear maps, of three bits: 2^3 : PSL(3, 2)
    tuple(x ^ 1 for x in range(8)),
    tuple(x * 2 % 8 | x >> 2 for x in range(8)),
    tuple(x ^ (x & 1) << 1 for x in range(8)),
]
GROUPS = {  # name: generators, order, factors as (order, points), degree
    "C2": (cyclic(2), 2, [(2, 2)], 2),
    "C4": (cyclic(4), 4, [(2, 2)] * 2, 2),
    "C5": (cyclic(5), 5, [(5, 5)], 5),
    "C6 on 5 points": ([permutation(5, (0, 1), (2, 3, 4))], 6, [(2, 2), (3, 3)], 3),
    "C12": (cyclic(12), 12, [(2, 2), (2, 2), (3, 3)], 3),
    "S3": (symmetric(3), 6, [(2, 2), (3, 3)], 3),
    "D4": (dihedral(4), 8, [(2, 2)] * 3, 2),
    "D5": (dihedral(5), 10, [(2, 2), (5, 5)], 5),
    "D6": (dihedral(6), 12, [(2, 2), (2, 2), (3, 3)], 3),
    "A4": (alternating(4), 12, [(2, 2), (2, 2), (3, 3)], 3),
    "S4": (symmetric(4), 24, [(2, 2)] * 3 + [(3, 3)], 3),
    "A5": (alternating(5), 60, [(60, 5)], 5),
    "S5": (symmetric(5), 120, [(2, 2), (60, 5)], 5),
    "A6": (alternating(6), 360, [(360, 6)], 6),
    "A5 x C2": (side_by_side(alternating(5), cyclic(2)), 120, [(2, 2), (60, 5)], 5),
    "A5 x A5": (side_by_side(alternating(5), alternating(5)), 3600, [(60, 5)] * 2, 5),
    "A5 wr C2": (
        [*side_by_side(alternating(5), [tuple(range(5))]), (5, 6, 7, 8, 9, 0, 1, 2, 3, 4)],
        7200,
        [(2, 2), (60, 5), (60, 5)],
        5,
    ),
    "PSL(2, 7)": ([permutation(7, range(7)), permutation(7, (1, 2), (3, 6))], 168, [(168, 7)], 7),
    "2^3 : PSL(3, 2)": (AFFINE, 1344, [(2, 2)] * 3 + [(168, 7)], 7),
    "PSL(2, 11)": (
        [permutation(11, range(11)), permutation(11, (2, 10), (3, 4), (5, 9), (6, 7))],
        660,
        [(660, 11)],
        11,
    ),
    "M11": ([permutation(11, range(11)), permutation(11, (2, 6, 10, 7), (3, 9, 4, 5))], 7920, [(7920, 11)], 11),
    "S8": (symmetric(8), 40320, [(2, 2), (20160, 8)], 8),
    "S10": (symmetric(10), 3628800, [(2, 2), (1814400, 10)], 10),
}
MAPS = tuple(product(range(3), repeat=3))  # all of three points
MACHINES = {  # that a cascade is made of
    **{f"T{n}": transformations(n) for n in (2, 3, 4, 5)},
    **{name: semiautomaton(*GROUPS[name][0]) for name in ("S3", "D4", "S4", "A5", "S5", "C12")},
    **{f"random {n}, {seed}": random_machine(seed, n) for n in (4, 5, 6, 7) for seed in range(6)},
    **{
        name: Machine.from_task(make_task(name)).minimise()
        for name in ("latching(4)", "sequences(2)", "fflm(0.8)", "word_problem(S3)", "tomita(3)", "modular_arithmetic")
    },
    "one state": Machine.from_table([[0, 0]], [[0, 1]]),
}
