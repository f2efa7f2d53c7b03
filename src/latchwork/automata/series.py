"""A group of permutations as a cascade of simple groups, each on as few points as it can act on.

Permutations are tuples; point x goes to g[x], and in a product what is written first acts first: (g h)[x] = h[g[x]].

Let G = G_0 > G_1 > ... > G_k = 1 be a composition series. An element g is told by k coordinates: the first is what g
does to the points of the simple group G_0 / G_1; with t_0 the representative chosen for that, g = g_1 t_0, and the
others tell g_1 in the same way. When h is multiplied to g, the first coordinate is multiplied by the image of h, and
g_1 by h_1 = t_0 h t_0'^-1, where t_0' stands for the new coordinate: an element of G_1 that h and the old coordinate
tell. So each coordinate sees h and the coordinates before it alone, and all it has to do is to multiply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from latchwork.automata.errors import DecompositionTooLarge
from latchwork.automata.subsets import Permutation

MAX_ELEMENTS = 20_000
TRIES = 10_000  # pairs of elements that may generate the subgroup looked for
ADVICE = "allow more by max_elements, or keep the group as it is, on the points that it acts on"


@dataclass(frozen=True)
class Step:
    """One simple factor G_i / G_(i+1).

    points: how many it acts on. images: for each element of G_i, what it does to them. representatives: for each
    permutation of the points that comes, the element of G_i that is chosen for it.
    """

    points: int
    images: Mapping[Permutation, Permutation]
    representatives: Mapping[Permutation, Permutation]

    @property
    def order(self) -> int:
        """Of the simple group."""
        return len(self.representatives)

    def rest(self, element: Permutation, coordinate: Permutation) -> Permutation:
        """What the next step is multiplied by, when this one is multiplied by the image of an element of G_i."""
        after = self.representatives[multiply(coordinate, self.images[element])]
        return multiply(multiply(self.representatives[coordinate], element), inverse(after))


@dataclass(frozen=True)
class Series:
    """The coordinates of a group of permutations of 0..points-1. See the module's text, and `series` to make one."""

    points: int
    steps: tuple[Step, ...]

    def encode(self, element: Permutation) -> tuple[Permutation, ...]:
        """The coordinates of an element: for each step a permutation of its points."""
        if self.steps and element not in self.steps[0].images:
            raise ValueError(f"element must be one of the group's {len(self.steps[0].images)}; got {element}")
        coordinates = []
        for step in self.steps:
            coordinates.append(step.images[element])
            element = multiply(element, inverse(step.representatives[coordinates[-1]]))
        return tuple(coordinates)

    def decode(self, coordinates: Sequence[Permutation]) -> Permutation:
        """The element with these coordinates."""
        element = tuple(range(self.points))
        for step, coordinate in zip(self.steps, coordinates, strict=True):
            element = multiply(step.representatives[coordinate], element)
        return element

    def move(self, coordinates: Sequence[Permutation], element: Permutation) -> tuple[Permutation, ...]:
        """The coordinates of g h from those of g and from h, step by step."""
        after = []
        for step, coordinate in zip(self.steps, coordinates, strict=True):
            after.append(multiply(coordinate, step.images[element]))
            element = step.rest(element, coordinate)
        return tuple(after)

    def inputs(self, elements: Iterable[Permutation]) -> tuple[frozenset[Permutation], ...]:
        """For each step, what it can be multiplied by when the group is multiplied by one of `elements`."""
        found = []
        here = frozenset(elements)
        for step in self.steps:
            found.append(here)
            here = frozenset(step.rest(element, each) for element in here for each in step.representatives)
        return tuple(found)


def multiply(g: Permutation, h: Permutation) -> Permutation:
    """First g, then h.

    >>> multiply((1, 0, 2), (0, 2, 1))
    (2, 0, 1)
    """
    return tuple(map(h.__getitem__, g))


def inverse(g: Permutation) -> Permutation:
    """What undoes g."""
    found = [0] * len(g)
    for point, image in enumerate(g):
        found[image] = point
    return tuple(found)


def series(generators: Iterable[Sequence[int]], points: int, max_elements: int = MAX_ELEMENTS) -> Series:
    """The group that permutations of 0..points-1 generate, in coordinates of simple groups.

    Raises DecompositionTooLarge beyond max_elements elements.
    >>> s4 = series([(1, 2, 3, 0), (1, 0, 2, 3)], 4)
    >>> [step.points for step in s4.steps]
    [2, 3, 2, 2]
    >>> coordinates = s4.encode((1, 2, 3, 0))
    >>> s4.decode(s4.move(coordinates, (1, 0, 2, 3))) == multiply((1, 2, 3, 0), (1, 0, 2, 3))
    True
    """
    group = _generated([tuple(each) for each in generators], points, limit=max_elements)
    if group is None:
        raise DecompositionTooLarge("elements of a group", max_elements, ADVICE)
    steps = []
    while len(group) > 1:
        derived = _normal_closure([_commutator(g, h) for g in group.generators for h in group.generators], group)
        step, group = _cyclic_step(group, derived) if len(derived) < len(group) else _simple_step(group)
        steps.append(step)
    return Series(points, tuple(steps))


@dataclass(frozen=True)
class _Group:
    generators: tuple[Permutation, ...]
    elements: frozenset[Permutation]

    def __len__(self) -> int:
        return len(self.elements)


def _generated(generators: Iterable[Permutation], points: int, limit: int | None = None) -> _Group | None:
    """All products; None if there are more than the limit. Generators that add nothing are left out."""
    identity = tuple(range(points))
    elements, kept = {identity}, []
    for generator in generators:
        if generator in elements:
            continue
        kept.append(generator)
        cosets = [identity]  # of what was generated before: a whole coset is new, or none of it
        before = list(elements)
        for representative in cosets:
            for each in kept:
                product = multiply(representative, each)
                if product not in elements:
                    if limit is not None and len(elements) + len(before) > limit:
                        return None
                    cosets.append(product)
                    elements.update(multiply(element, product) for element in before)
    return _Group(tuple(kept), frozenset(elements))


def _subgroup(generators: Iterable[Permutation], points: int) -> _Group:
    group = _generated(generators, points)
    assert group is not None
    return group


def _commutator(g: Permutation, h: Permutation) -> Permutation:
    return multiply(multiply(inverse(g), inverse(h)), multiply(g, h))


def _normal_closure(elements: Iterable[Permutation], group: _Group) -> _Group:
    """The smallest normal subgroup that holds the elements."""
    points = len(next(iter(group.elements)))
    closure = _subgroup(elements, points)
    while True:
        conjugates = (multiply(multiply(inverse(g), each), g) for each in closure.generators for g in group.generators)
        missing = [each for each in conjugates if each not in closure.elements]
        if not missing:
            return closure
        closure = _subgroup([*closure.generators, *missing], points)


def _cyclic_step(group: _Group, normal: _Group) -> tuple[Step, _Group]:
    """A step of prime order, down to a subgroup that holds the derived subgroup `normal`, as every such is normal."""
    points = len(next(iter(group.elements)))
    while (index := len(group) // len(normal)) != _smallest_prime(index):
        new = next(g for g in group.generators if g not in normal.elements)
        larger = _subgroup([*normal.generators, new], points)
        if len(larger) == len(group):  # the rest is cyclic: a power of it is less
            larger = _subgroup([*normal.generators, _power(new, _smallest_prime(index))], points)
        normal = larger
    prime = len(group) // len(normal)
    turn = next(g for g in group.generators if g not in normal.elements)
    images: dict[Permutation, Permutation] = {}
    representatives: dict[Permutation, Permutation] = {}
    for times in range(prime):
        rotation = tuple((point + times) % prime for point in range(prime))
        representatives[rotation] = _power(turn, times)
        images.update((multiply(element, representatives[rotation]), rotation) for element in normal.elements)
    return Step(prime, images, representatives), normal


def _smallest_prime(number: int) -> int:
    return next(k for k in range(2, number + 1) if number % k == 0)


def _power(g: Permutation, times: int) -> Permutation:
    found = tuple(range(len(g)))
    for _ in range(times):
        found = multiply(found, g)
    return found


def _simple_step(group: _Group) -> tuple[Step, _Group]:
    """A step of a simple group that is not cyclic, for a group that equals its derived subgroup."""
    from latchwork.automata.groups import permutation_group, simple_factors

    points = len(next(iter(group.elements)))
    normal = _largest_normal(group)
    order = len(group) // len(normal)
    factors = simple_factors(permutation_group(group.generators, points))
    degree = next(factor.points for factor in factors if factor.order == order)
    cosets = _cosets(group, _subgroup_of_index(group, normal, degree))
    number = {element: k for k, coset in enumerate(cosets) for element in coset}
    images: dict[Permutation, Permutation] = {}
    representatives: dict[Permutation, Permutation] = {}
    for element in sorted(group.elements):
        image = tuple(number[multiply(coset[0], element)] for coset in cosets)
        images[element] = image
        representatives.setdefault(image, element)
    assert len(representatives) == order
    return Step(degree, images, representatives), normal


def _largest_normal(group: _Group) -> _Group:
    """A normal subgroup that no other but the whole group holds."""
    points = len(next(iter(group.elements)))
    normal = _subgroup([], points)
    refused: set[Permutation] = set()  # with any of these the closure is the whole group
    for element in sorted(group.elements):
        if element in normal.elements or element in refused:
            continue
        closure = _normal_closure([*normal.generators, element], group)
        if len(closure) < len(group):
            normal = closure
        else:
            refused.update(_conjugates(element, group))
    return normal


def _conjugates(element: Permutation, group: _Group) -> set[Permutation]:
    found, waiting = {element}, [element]
    for here in waiting:
        for g in group.generators:
            after = multiply(multiply(inverse(g), here), g)
            if after not in found:
                found.add(after)
                waiting.append(after)
    return found


def _subgroup_of_index(group: _Group, normal: _Group, index: int) -> _Group:
    """A subgroup of that index over a normal one: a point's stabilizer, or what two elements generate with it."""
    points = len(next(iter(group.elements)))
    size = len(group) // index
    for point in range(points):
        stabilizer = frozenset(element for element in group.elements if element[point] == point)
        if len(stabilizer) == size and normal.elements <= stabilizer:
            return _Group((), stabilizer)
    elements, draw = sorted(group.elements), Random(0)
    for _ in range(TRIES):
        pair = draw.choice(elements), draw.choice(elements)
        subgroup = _generated([*normal.generators, *pair], points, limit=size)
        if subgroup is not None and len(subgroup) == size:
            return subgroup
    raise DecompositionTooLarge("pairs of elements of a group", TRIES, f"none generates a subgroup of index {index}")


def _cosets(group: _Group, subgroup: _Group) -> list[list[Permutation]]:
    """K g, for all g; each begins with its representative."""
    cosets, seen = [], set()
    for element in sorted(group.elements):
        if element not in seen:
            coset = [element, *(multiply(each, element) for each in subgroup.elements)]
            cosets.append(coset)
            seen.update(coset)
    return cosets
