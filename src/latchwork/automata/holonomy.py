"""The holonomy decomposition: a machine as a cascade of permutations and resets.

A state is found by going down: from the set of all states to a tile of it, a largest image of the whole that lies
properly inside, from there to a tile of that, and so on to a single state. The coordinates are the numbers of the
tiles, one for each depth; sets that words lead to and back from stand at one depth and number their tiles alike.

When a symbol a is read, the old coordinates go down a path P_0, P_1, ... and the new ones a path P'_0, P'_1, ..., and
always P_d.a lies in P'_d. The new coordinate at depth d depends on (P_d, a, P'_d) and on the old coordinate alone:

- P'_d stands at another depth: the coordinate is not used, and stays;
- P_d.a = P'_d: a moves the tiles of P_d to those of P'_d, a permutation of their numbers;
- else P_d.a lies in a tile of P'_d: a reset to that tile.

So every level is made of permutations and resets, and where the machine is group-free the permutations are identities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy

from latchwork.automata.errors import DecompositionTooLarge
from latchwork.automata.subsets import ADVICE, MAX_SETS, Permutation, Subsets, members, subsets
from latchwork.machines.machine import Machine

MAX_TRIPLES = 500_000
MAX_TUPLES = 200_000
ADVICE_TRIPLES = ADVICE.replace("max_sets", "max_triples")
Coordinates = tuple[int, ...]
Triple = tuple[int, int, int]  # the old set, the symbol, the new set


@dataclass(frozen=True)
class Action:
    """What a level does with its coordinate: `images[c]` follows c, for each of the level's tiles.

    kind: "identity"; "permutation", never the identity; "reset", whose images are all one.
    """

    kind: Literal["identity", "permutation", "reset"]
    images: tuple[int, ...]


@dataclass(frozen=True)
class Level:
    """One coordinate of the cascade.

    tiles: how many values it takes. sets: those that it can find itself in, by their place in `Holonomy.sets`.
    classes: the sets that use the coordinate, those that words lead to and back from together; at other sets the
    coordinate stays. groups: for each class the permutations that occur, on `tiles` points, but for the identity: they
    generate its holonomy group.
    actions: what happens at each (old set, symbol, new set) that can come, and maybe at some that cannot.
    descents: (set, coordinate) -> the set for the next level, for every set of `sets` and each value that it can have.
    """

    tiles: int
    sets: tuple[int, ...]
    classes: tuple[tuple[int, ...], ...]
    groups: tuple[frozenset[Permutation], ...]
    actions: Mapping[Triple, Action]
    descents: Mapping[tuple[int, int], int]

    @property
    def has_group(self) -> bool:
        """Whether some permutation is not the identity; else identities and resets are all."""
        return any(self.groups)


@dataclass(frozen=True)
class Holonomy:
    """A cascade that runs a machine. See the module's text for what it is, and `holonomy` to make one.

    machine: the one that it runs, without the states that are not reached. sets: the sets of its states on the ways
    down, that of all first. tiles: for each set, its tiles by their places in `sets`, in the order of the coordinate;
    none for a single state. depth: for each set, the level that it uses; for a single state, the number of levels.
    """

    machine: Machine
    sets: tuple[tuple[int, ...], ...]
    tiles: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]
    levels: tuple[Level, ...]

    @cached_property
    def start(self) -> Coordinates:
        """The coordinates before the first step."""
        return self.encode(self.machine.start)

    @property
    def is_group_free(self) -> bool:
        """Whether no level needs a group."""
        return not any(level.has_group for level in self.levels)

    def encode(self, state: int) -> Coordinates:
        """Coordinates of a state: the lowest tile that holds it, again and again; those not used are 0."""
        if not 0 <= state < self.machine.n_states:
            raise ValueError(f"state must be in 0..{self.machine.n_states - 1}; got {state}")
        here, coordinates = 0, []
        for depth in range(len(self.levels)):
            tile = 0
            if self.depth[here] == depth:
                tile = next(k for k, each in enumerate(self.tiles[here]) if state in self._members[each])
                here = self.tiles[here][tile]
            coordinates.append(tile)
        return tuple(coordinates)

    def decode(self, coordinates: Sequence[int]) -> int:
        """The state that coordinates lead down to."""
        return self.sets[self.path(coordinates)[-1]][0]

    def path(self, coordinates: Sequence[int]) -> tuple[int, ...]:
        """The sets that coordinates lead down through: that before each level, and the single state at the end."""
        if len(coordinates) != len(self.levels):
            raise ValueError(f"coordinates must be {len(self.levels)} numbers; got {len(coordinates)}")
        here = [0]
        for depth, tile in enumerate(coordinates):
            below = here[-1]
            if self.depth[below] == depth:
                if not 0 <= tile < len(self.tiles[below]):
                    raise ValueError(
                        f"coordinates[{depth}] must be in 0..{len(self.tiles[below]) - 1} here; got {tile}"
                    )
                below = self.tiles[below][tile]
            here.append(below)
        return tuple(here)

    def step(self, coordinates: Sequence[int], symbol: int) -> Coordinates:
        """The coordinates after a symbol; each level sees the old and new ones of the levels before it alone."""
        old = new = 0
        after = []
        for level, coordinate in zip(self.levels, coordinates, strict=True):
            following = level.actions[old, symbol, new].images[coordinate]
            old, new = level.descents[old, coordinate], level.descents[new, following]
            after.append(following)
        return tuple(after)

    def output(self, coordinates: Sequence[int], symbol: int) -> int:
        """What the machine gives at a symbol, from its coordinates before the step."""
        return int(self.machine.outputs[self.decode(coordinates), symbol])

    def walk(self, max_tuples: int = MAX_TUPLES) -> dict[Coordinates, list[Coordinates]]:
        """All coordinates that words lead to, with those that follow at each symbol; they can be very many."""
        found: dict[Coordinates, list[Coordinates]] = {}
        waiting = [self.start]
        seen = {self.start}
        for here in waiting:
            found[here] = [self.step(here, symbol) for symbol in range(self.machine.n_symbols)]
            for following in found[here]:
                if following not in seen:
                    if len(seen) >= max_tuples:
                        raise DecompositionTooLarge("tuples of coordinates", len(seen), "allow more by max_tuples")
                    seen.add(following)
                    waiting.append(following)
        return found

    def is_right(self) -> bool:
        """A proof, for words of any length, that the cascade moves as the machine does; False if it does not.

        Down the tables go all pairs of old and new coordinates that a symbol can make, not one by one but by the sets
        that they stand in; at the end there are single states, and the symbol must lead from the old to the new one.
        """
        triples = {(0, symbol, 0) for symbol in range(self.machine.n_symbols)}
        for depth, level in enumerate(self.levels):
            following = set()
            for old, symbol, new in triples:
                images = level.actions[old, symbol, new].images
                for coordinate in range(len(self.tiles[old]) if self.depth[old] == depth else level.tiles):
                    after = images[coordinate]
                    if self.depth[new] == depth and after >= len(self.tiles[new]):
                        return False
                    following.add((level.descents[old, coordinate], symbol, level.descents[new, after]))
            triples = following
        return self.decode(self.start) == self.machine.start and all(
            self.sets[new] == (self.machine.transitions[self.sets[old][0], symbol],) and len(self.sets[old]) == 1
            for old, symbol, new in triples
        )

    @cached_property
    def _members(self) -> list[frozenset[int]]:
        return [frozenset(each) for each in self.sets]


def holonomy(machine: Machine, max_sets: int = MAX_SETS, max_triples: int = MAX_TRIPLES) -> Holonomy:
    """Decompose a machine, without its states that are not reached; `machine.minimise()` first if it is not minimal.

    Raises DecompositionTooLarge beyond max_sets sets of states, or max_triples entries in the tables of the levels.
    >>> cascade = holonomy(Machine.from_regex("(ab)*", "ab"))  # group-free: identities and resets
    >>> [(level.tiles, level.has_group) for level in cascade.levels]
    [(2, False), (2, False)]
    >>> [level.groups for level in holonomy(Machine.from_regex("(aa)*", "a")).levels]
    [(frozenset({(1, 0)}),)]
    """
    reached = machine.reachable()
    graph = subsets(reached, max_sets, singletons=True)
    tiles, group_of = _tiles(graph)
    used = list(tiles)  # the set of all states first
    heights = _heights(graph, tiles, group_of)
    place = {node: k for k, node in enumerate(used)}
    depth = tuple(heights[0] - heights[node] for node in used)
    below = tuple(tuple(place[tile] for tile in tiles[node]) for node in used)
    after = [[place.get(node, -1) for node in graph.successor[node]] for node in used]
    images = [[graph.sets[node] for node in graph.successor[node]] for node in used]
    masks = [graph.sets[node] for node in used]
    levels = _levels(below, depth, after, images, masks, [group_of[node] for node in used], max_triples)
    return Holonomy(reached, tuple(members(mask) for mask in masks), below, depth, levels)


def _tiles(graph: Subsets) -> tuple[dict[int, list[int]], dict[int, int]]:
    """For each set on a way down from that of all states, its tiles in order; and the component of each."""
    component_of = {node: k for k, component in enumerate(graph.components) for node in component}
    number = {mask: node for node, mask in enumerate(graph.sets)}
    words = -(-max(mask.bit_length() for mask in graph.sets) // 64)
    packed = numpy.array([[mask >> 64 * word & (1 << 64) - 1 for word in range(words)] for mask in graph.sets], "u8")
    size = numpy.array([mask.bit_count() for mask in graph.sets])
    first_tiles: dict[int, list[int]] = {}
    maps: dict[int, dict[int, tuple[int, ...]]] = {}
    found: dict[int, list[int]] = {}
    waiting = [0]
    for node in waiting:
        if node in found:
            continue
        component = component_of[node]
        if component not in first_tiles:
            first = graph.components[component][0]
            first_tiles[component] = _largest_inside(packed, size, first)
            maps[component] = graph.maps(graph.components[component])
        moved = dict(zip(members(graph.sets[graph.components[component][0]]), maps[component][node], strict=True))
        found[node] = [
            number[sum(1 << moved[state] for state in members(graph.sets[tile]))] for tile in first_tiles[component]
        ]
        waiting.extend(found[node])
    return found, {node: component_of[node] for node in found}


def _largest_inside(packed: numpy.ndarray, size: numpy.ndarray, node: int) -> list[int]:
    """The sets that lie properly inside one and in no other that does, in order of their number."""
    inside = numpy.flatnonzero(((packed & ~packed[node]) == 0).all(1) & (size < size[node]))
    inside = inside[numpy.argsort(-size[inside], kind="stable")]
    largest: list[int] = []
    while len(inside):
        largest.append(int(inside[0]))
        inside = inside[((packed[inside] & ~packed[inside[0]]) != 0).any(1)]
    return sorted(largest)


def _heights(graph: Subsets, tiles: Mapping[int, Sequence[int]], component_of: Mapping[int, int]) -> dict[int, int]:
    """For each set used, the length of the longest way from its component down to single states."""
    inside: dict[int, list[int]] = {}
    for node in tiles:
        inside.setdefault(component_of[node], []).append(node)
    height: dict[int, int] = {}
    # Those that a component leads to are smaller, or of the same size and earlier in the order of components.
    for component in sorted(inside, key=lambda each: (graph.sets[inside[each][0]].bit_count(), each)):
        below = {component_of[tile] for node in inside[component] for tile in tiles[node]}
        if below:
            below |= {component_of[to] for node in inside[component] for to in graph.successor[node] if to in tiles}
        height[component] = max((height[each] + 1 for each in below - {component}), default=0)
    return {node: height[component_of[node]] for node in tiles}


def _levels(
    tiles: Sequence[Sequence[int]],
    depth: Sequence[int],
    after: Sequence[Sequence[int]],
    images: Sequence[Sequence[int]],
    masks: Sequence[int],
    component: Sequence[int],
    max_triples: int,
) -> tuple[Level, ...]:
    """The tables of each level, from the triples that can stand before it."""
    place = [{tile: k for k, tile in enumerate(each)} for each in tiles]
    triples: set[Triple] = {(0, symbol, 0) for symbol in range(len(after[0]))}
    count, levels = 0, []
    for here in range(depth[0], max(depth)):
        sets = sorted({node for old, _, new in triples for node in (old, new)})
        own = [node for node in sets if depth[node] == here]
        width = max((len(tiles[node]) for node in own), default=0)
        identity = Action("identity", tuple(range(width)))
        resets = [Action("reset", (tile,) * width) for tile in range(width)]
        classes = {each: k for k, each in enumerate(sorted({component[node] for node in own}))}
        groups: list[set[Permutation]] = [set() for _ in classes]
        actions: dict[Triple, Action] = {}
        following: set[Triple] = set()
        for old, symbol, new in triples:
            if depth[new] != here:
                action = identity
            elif images[old][symbol] == masks[new]:
                moved = tuple(place[new][after[tile][symbol]] for tile in tiles[old])
                action = Action("permutation", moved + tuple(range(len(moved), width)))
                if action.images == identity.images:
                    action = identity
                else:
                    groups[classes[component[new]]].add(action.images)
            else:
                image = images[old][symbol]
                action = resets[next(k for k, tile in enumerate(tiles[new]) if image & ~masks[tile] == 0)]
            actions[old, symbol, new] = action
            for coordinate in range(len(tiles[old])) if depth[old] == here else (0,):
                below = tiles[old][coordinate] if depth[old] == here else old
                now = tiles[new][action.images[coordinate]] if depth[new] == here else new
                following.add((below, symbol, now))
            count += 1
            if count > max_triples:
                raise DecompositionTooLarge("entries in the tables of the levels", count, ADVICE_TRIPLES)
        descents = {
            (node, coordinate): tiles[node][coordinate] if depth[node] == here else node
            for node in sets
            for coordinate in range(len(tiles[node]) if depth[node] == here else width)
        }
        levels.append(
            Level(
                tiles=width,
                sets=tuple(sets),
                classes=tuple(tuple(node for node in own if component[node] == each) for each in classes),
                groups=tuple(frozenset(group) for group in groups),
                actions=actions,
                descents=descents,
            )
        )
        triples = following
    return tuple(levels)
