"""Finite groups of permutations: their simple factors, and on how few points each of those can act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from math import factorial, gcd
from typing import Any, NamedTuple

from sympy import factorint
from sympy.combinatorics import Permutation, PermutationGroup

from latchwork.automata.errors import DecompositionTooLarge

MAX_ORDER = 20_000  # of a group whose elements are looked at one by one
OTHERS = {  # order: the fewest points, for simple groups that are neither alternating nor PSL(2, q)
    5616: 13, 6048: 28, 7920: 11, 25920: 27, 29120: 65, 62400: 65, 95040: 12, 126000: 50, 175560: 266, 372000: 31,
    443520: 22, 604800: 100, 979200: 85, 1451520: 28, 9999360: 31, 10200960: 23, 244823040: 24,
}  # fmt: skip
FEWER = {5: 5, 7: 7, 9: 6, 11: 11}  # the points of PSL(2, q) where they are fewer than q + 1


class Factor(NamedTuple):
    """A simple group: its order, and the fewest points on which it can act faithfully."""

    order: int
    points: int


def permutation_group(generators: Iterable[Sequence[int]], points: int) -> Any:
    """sympy's group of permutations of 0..points-1; a generator that adds nothing is left out.

    >>> permutation_group([(1, 0, 2), (1, 2, 0), (2, 0, 1)], 3).order()
    6
    """
    group = PermutationGroup([Permutation(points - 1)])
    for generator in sorted(generators, key=tuple, reverse=True):
        element = Permutation(list(generator), size=points)
        if not group.contains(element):
            group = PermutationGroup([*(each for each in group.generators if not each.is_Identity), element])
    return group


def simple_factors(group: Any) -> Counter[Factor]:
    """The factors of a composition series, each with the number of times it comes.

    >>> simple_factors(permutation_group([(1, 2, 3, 0), (1, 0, 2, 3)], 4))  # S4: 2, 3, 2, 2
    Counter({Factor(order=2, points=2): 3, Factor(order=3, points=3): 1})
    """
    order = group.order()
    if order == 1:
        return Counter()
    if group.is_solvable:
        return _primes(order)
    derived = group.derived_subgroup()
    if derived.order() < order:
        return _primes(order // derived.order()) + simple_factors(derived)
    if parts := _action(group):
        return sum((simple_factors(part) for part in parts), Counter())
    return _factors_of_primitive(group)


def _primes(order: int) -> Counter[Factor]:
    return Counter({Factor(int(p), int(p)): int(times) for p, times in factorint(order).items()})


def _action(group: Any) -> tuple[Any, Any] | None:
    """Image and kernel of what the group does to an orbit or to blocks; None if there is one orbit and no blocks."""
    orbits = [sorted(orbit) for orbit in group.orbits() if len(orbit) > 1]
    if len(orbits[0]) < group.degree:
        place = {point: k for k, point in enumerate(orbits[0])}
        image = permutation_group([[place[g(p)] for p in orbits[0]] for g in group.generators], len(place))
        kernel = group.pointwise_stabilizer(orbits[0]) if len(orbits) > 1 else permutation_group([], 1)
        return image, kernel
    for point in range(1, group.degree):
        blocks = group.minimal_block([0, point])
        if 1 < (width := len(set(blocks))) < group.degree:
            number = {block: k for k, block in enumerate(sorted(set(blocks)))}
            first = {number[block]: k for k, block in reversed(list(enumerate(blocks)))}
            moved = [[number[blocks[g(first[k])]] for k in range(width)] for g in group.generators]
            both = [  # blocks first, then points: what leaves the blocks alone is a stabilizer
                [*image, *(width + g(p) for p in range(group.degree))]
                for image, g in zip(moved, group.generators, strict=True)
            ]
            kernel = permutation_group(both, width + group.degree).pointwise_stabilizer(list(range(width)))
            return permutation_group(moved, width), kernel
    return None


def _factors_of_primitive(group: Any) -> Counter[Factor]:
    """Of a group that equals its derived group, moves all of its points, and has no blocks."""
    order, points = group.order(), group.degree
    stabilizer = group.stabilizer(0)
    # A normal subgroup N other than 1 moves a point to every other, so that group / N is a factor of the stabilizer;
    # it cannot be solvable, for the group equals its derived group. So there is none if the stabilizer is solvable.
    if order == factorial(points) // 2 or stabilizer.is_solvable:
        return Counter({Factor(order, _points(order, group)): 1})
    # Such an N has elements of every prime order that divides the number of points; where the prime divides the order
    # of the group but once, one such element is as good as any other, for Sylow's subgroups are conjugate.
    primes = sorted(factorint(points), key=lambda prime: (order % prime**2 > 0, prime))
    prime = primes[-1]
    one_is_enough = order % prime**2 > 0
    if order > MAX_ORDER and not one_is_enough:
        raise DecompositionTooLarge(
            "elements of a primitive group", order, "its factors cannot be told by this library"
        )
    tried: set[Any] = set()
    for element in group.generate():
        if (size := element.order()) % prime:
            continue
        root = element ** (size // prime)
        if root in tried:
            continue
        tried.update(root**k for k in range(1, prime))
        normal = group.normal_closure(PermutationGroup([root]))
        if normal.order() < order:
            rest = simple_factors(stabilizer) - simple_factors(normal.stabilizer(0))  # of group / normal
            return simple_factors(normal) + rest
        if one_is_enough:
            break
    return Counter({Factor(order, _points(order, group)): 1})


def _points(order: int, group: Any) -> int:
    """The fewest points on which a simple group, not abelian, can act: its order tells it, but for 20160."""
    if order == 20160:  # A8 has elements of order 15, PSL(3, 4) has none
        return 8 if any(element.order() == 15 for element in group.generate()) else 21
    if order not in _simple_orders():
        raise DecompositionTooLarge("elements of a simple group", order, "the fewest points for it are not known here")
    return _simple_orders()[order]


@cache
def _simple_orders() -> dict[int, int]:
    """Order -> the fewest points, of the alternating groups to A25, PSL(2, q) to q = 200, and some others."""
    found = dict(OTHERS)
    for q in range(7, 201):
        if len(factorint(q)) == 1:
            found[q * (q * q - 1) // gcd(2, q - 1)] = FEWER.get(q, q + 1)
    found.update({factorial(n) // 2: n for n in range(5, 26)})
    return found
