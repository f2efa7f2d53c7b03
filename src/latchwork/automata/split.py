"""A cascade whose groups are split into simple ones, each on as few points as it can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from latchwork.automata.holonomy import Action, Holonomy, Level
from latchwork.automata.series import MAX_ELEMENTS, Series, multiply, series
from latchwork.automata.subsets import Permutation


@dataclass(frozen=True)
class TilePlace:
    """What stands for a tile at a level that is split: the number of an orbit, and an element in its coordinates."""

    orbit: int
    element: tuple[Permutation, ...]


@dataclass(frozen=True)
class Part:
    """What a level is to one class of its sets: tile g[bases[orbit]] is told by an orbit and an element g of a group.

    series: the coordinates of the group. bases: for each orbit of tiles its first. elements: for each tile its orbit,
    and an element that takes the base to it; a reset to the tile sets these.
    """

    series: Series
    bases: tuple[int, ...]
    elements: tuple[tuple[int, Permutation], ...]


@dataclass(frozen=True)
class SplitLevel:
    """A level of which each coordinate is an orbit's number, changed by resets alone, or an element of a simple group.

    level: as it was. orbits: how many values the orbit's number takes; where it is 1 there is nothing to keep.
    points: of each coordinate that is a permutation, how many it permutes. parts: one for each of the level's classes,
    which share the coordinates: where a class needs fewer of them, or fewer points, the others stay where they are.
    class_of: for each set that uses the level, the number of its class.

    When the level's action is a permutation h, the first coordinate is multiplied by the image of h in the first step
    of the series, the second by that of `steps[0].rest(h, old first coordinate)` in the second, and so on.
    """

    level: Level
    orbits: int
    points: tuple[int, ...]
    parts: tuple[Part, ...]
    class_of: Mapping[int, int]

    def encode(self, part: int, tile: int) -> TilePlace:
        """What a reset to a tile sets, for sets of that class."""
        orbit, element = self.parts[part].elements[tile]
        return TilePlace(orbit, self._widen(self.parts[part].series.encode(element)))

    def decode(self, part: int, place: TilePlace) -> int:
        """The tile, for sets of that class."""
        here = self.parts[part]
        return here.series.decode(self._narrow(part, place))[here.bases[place.orbit]]

    def act(self, part: int, action: Action, place: TilePlace) -> TilePlace:
        """What follows, where the new set is of that class."""
        if action.kind == "reset":
            return self.encode(part, action.images[0])
        if action.kind == "identity":
            return place
        moved = self.parts[part].series.move(self._narrow(part, place), action.images)
        return TilePlace(place.orbit, self._widen(moved))

    def _narrow(self, part: int, place: TilePlace) -> tuple[Permutation, ...]:
        steps = self.parts[part].series.steps
        return tuple(each[: step.points] for each, step in zip(place.element, steps, strict=False))

    def _widen(self, element: Sequence[Permutation]) -> tuple[Permutation, ...]:
        missing = [tuple(range(points)) for points in self.points[len(element) :]]
        wide = [(*each, *range(len(each), points)) for each, points in zip(element, self.points, strict=False)]
        return (*wide, *missing)


@dataclass(frozen=True)
class SplitCascade:
    """A cascade of simple groups and resets that runs the machine of a holonomy decomposition; `split` makes one."""

    holonomy: Holonomy
    levels: tuple[SplitLevel, ...]

    @property
    def degree(self) -> int:
        """The most points that a group acts on; 1 if there is none."""
        return max((points for level in self.levels for points in level.points), default=1)

    @cached_property
    def start(self) -> tuple[TilePlace, ...]:
        """The places before the first step; at levels that are not used, the first orbit and the identity."""
        path = self.holonomy.path(self.holonomy.start)
        return tuple(
            level.encode(level.class_of[node], tile)
            if node in level.class_of
            else TilePlace(0, tuple(tuple(range(points)) for points in level.points))
            for level, node, tile in zip(self.levels, path, self.holonomy.start, strict=False)
        )

    def step(self, places: Sequence[TilePlace], symbol: int) -> tuple[TilePlace, ...]:
        """The places after a symbol; each level sees the old and new ones of the levels before it alone."""
        old = new = 0
        after = []
        for level, place in zip(self.levels, places, strict=True):
            action = level.level.actions[old, symbol, new]
            following = level.act(level.class_of[new], action, place) if new in level.class_of else place
            old, new = self._down(level, old, place), self._down(level, new, following)
            after.append(following)
        return tuple(after)

    def decode(self, places: Sequence[TilePlace]) -> int:
        """The machine's state."""
        here = 0
        for level, place in zip(self.levels, places, strict=True):
            here = self._down(level, here, place)
        return self.holonomy.sets[here][0]

    def _down(self, level: SplitLevel, node: int, place: TilePlace) -> int:
        if node not in level.class_of:
            return node
        return level.level.descents[node, level.decode(level.class_of[node], place)]


def split(cascade: Holonomy, max_elements: int = MAX_ELEMENTS) -> SplitCascade:
    """Split the groups of a cascade, of at most max_elements elements each, by composition series.

    Its degree is then that of the machine: see `latchwork.automata.degree`.
    >>> from latchwork.automata import Machine, holonomy
    >>> four = Machine.from_table([[1], [2], [3], [0]], [[0], [0], [0], [1]])  # counts to four: by two twos
    >>> cascade = split(holonomy(four))
    >>> cascade.degree, [level.points for level in cascade.levels]
    (2, [(2, 2)])
    """
    levels = []
    for level in cascade.levels:
        parts = tuple(
            _part(group, level.tiles, len(cascade.tiles[nodes[0]]), max_elements)
            for nodes, group in zip(level.classes, level.groups, strict=True)
        )
        longest = max(len(part.series.steps) for part in parts)
        points = tuple(
            max(part.series.steps[k].points for part in parts if k < len(part.series.steps)) for k in range(longest)
        )
        class_of = {node: number for number, nodes in enumerate(level.classes) for node in nodes}
        levels.append(SplitLevel(level, max(len(part.bases) for part in parts), points, parts, class_of))
    return SplitCascade(cascade, tuple(levels))


def _part(generators: frozenset[Permutation], width: int, tiles: int, max_elements: int) -> Part:
    """The group of a class that has `tiles` of the level's `width` tiles."""
    found: dict[int, tuple[int, Permutation]] = {}
    bases: list[int] = []
    for base in range(tiles):
        if base in found:
            continue
        found[base] = len(bases), tuple(range(width))
        for tile in (waiting := [base]):
            for generator in sorted(generators):
                if generator[tile] not in found:
                    found[generator[tile]] = len(bases), multiply(found[tile][1], generator)
                    waiting.append(generator[tile])
        bases.append(base)
    elements = tuple(found[tile] for tile in range(tiles))
    return Part(series(sorted(generators), width, max_elements), tuple(bases), elements)
