"""The layers of a level whose groups are split into simple ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

from latchwork.automata.holonomy import Action
from latchwork.automata.network import Bit, Conditions, Network, Rule, Unit, UnitAction, before_step, one_of
from latchwork.automata.series import Step
from latchwork.automata.split import SplitLevel, TilePlace
from latchwork.automata.subsets import Permutation

Causes = dict[tuple[int, Action], Conditions]  # what leads to each action of a level, by the class of the new set


def split_level(
    network: Network,
    level: SplitLevel,
    start: TilePlace,
    now: Mapping[int, Conditions],
    causes: Causes,
    beside: Sequence[Unit],
) -> list[Bit]:
    """The layers of a level with groups: the orbit and one simple group after the other. Returns the tiles' bits.

    What a group is multiplied by is told by what the group before it is, and by what that was before the step: it is
    told to the next one by a unit without memory.
    """
    resets = {(part, act.images[0]): list(when) for (part, act), when in causes.items() if act.kind == "reset"}
    moves = {(part, act.images): list(when) for (part, act), when in causes.items() if act.kind == "permutation"}
    targets = {key: level.encode(*key) for key in resets}
    orbit = Unit(
        start=[int(number == start.orbit) for number in range(level.orbits)],
        actions=[UnitAction.only(level.orbits, number) for number in range(level.orbits)],
        rules=[Rule(bits, targets[key].orbit) for key, conditions in resets.items() for bits in conditions],
    )
    in_class: dict[int, Conditions] = {}
    for node in (node for node in now if node in level.class_of):
        in_class.setdefault(level.class_of[node], []).extend(now[node])
    part_of = one_of(in_class, range(len(level.parts)))
    units = [*beside, *([orbit] if level.orbits > 1 else []), *([part_of] if len(level.parts) > 1 else [])]
    elements: list[_Element] = []  # one for each group
    for k in range(len(level.points)):
        element = _Element(level, k, start.element[k], moves, resets, targets)
        elements.append(element)
        if k + 1 == len(level.points):
            network.add([element.unit, *units])
            break
        command = [key for key in moves if len(level.parts[key[0]].series.steps) > k + 1]
        told = [moves[key] for key in command] + (list(resets.values()) if k == 0 else [])
        teller = one_of(dict(enumerate(told)))
        network.add([element.unit, *units, teller])
        if k == 0:
            resets = {key: [(bit,)] for key, bit in zip(resets, teller.bits[len(command) :], strict=True)}
        moves, units, count = {}, [], 0
        for (part, by), bit in zip(command, teller.bits, strict=False):
            step = level.parts[part].series.steps[k]
            network.check_room(count := count + step.order)
            for coordinate in step.representatives:
                rest = step.rest(by, coordinate)
                if rest != tuple(range(len(rest))):
                    moves.setdefault((part, rest), []).extend((bit, *then) for then in element.before(coordinate))
    return _tiles(network, level, orbit, part_of, elements)


class _Element:
    """One coordinate of a split level: the images of the points of a base, which tell an element of a simple group."""

    def __init__(
        self,
        level: SplitLevel,
        number: int,
        start: Permutation,
        moves: Mapping[tuple[int, Permutation], Conditions],
        resets: Mapping[tuple[int, int], Conditions],
        targets: Mapping[tuple[int, int], TilePlace],
    ) -> None:
        self.points, self.start = level.points[number], start
        steps = {k: part.series.steps[number] for k, part in enumerate(level.parts) if number < len(part.series.steps)}
        self.base = _base(list(steps.values()))
        actions: dict[tuple[str, tuple[int, ...]], int] = {}
        rules: list[Rule] = []
        for (part, by), conditions in moves.items():
            image = self._widen(steps[part].images[by])
            if image != tuple(range(self.points)):
                action = actions.setdefault(("move", image), len(actions))
                rules.extend(Rule(bits, action) for bits in conditions)
        for key, conditions in resets.items():
            places = self._places(targets[key].element[number])
            action = actions.setdefault(("write", places), len(actions))
            rules.extend(Rule(bits, action) for bits in conditions)
        self.unit = Unit(
            start=UnitAction.reset(self.points, *self._places(start)).s.tolist(),
            actions=[
                UnitAction.move(images, len(self.base)) if kind == "move" else UnitAction.reset(self.points, *images)
                for kind, images in actions
            ],
            rules=rules,
        )

    def now(self, coordinate: Permutation) -> tuple[Bit, ...]:
        """What says that it is this one now."""
        places = self._places(self._widen(coordinate))
        return tuple(self.unit.bits[self.points * part + place] for part, place in enumerate(places))

    def before(self, coordinate: Permutation) -> Conditions:
        """What says that it was this one before the step."""
        return before_step([self.now(coordinate)], self._widen(coordinate) == self.start)

    def _widen(self, coordinate: Permutation) -> Permutation:
        return (*coordinate, *range(len(coordinate), self.points))

    def _places(self, coordinate: Permutation) -> tuple[int, ...]:
        return tuple(coordinate[point] for point in self.base)


def _base(steps: Sequence[Step]) -> list[int]:
    """A few points whose images tell every element of each of the groups."""
    base: list[int] = []
    for point in range(max(step.points for step in steps)):
        seen = [{tuple(each[k] for k in base if k < step.points) for each in step.representatives} for step in steps]
        if all(len(images) == step.order for images, step in zip(seen, steps, strict=True)):
            break
        base.append(point)
    return base


def _tiles(network: Network, level: SplitLevel, orbit: Unit, part_of: Unit, elements: Sequence[_Element]) -> list[Bit]:
    """One more layer, that says the tile; its bits."""
    tiles: dict[int, Conditions] = {}
    count = 0
    for number, part in enumerate(level.parts):
        steps = part.series.steps
        network.check_room(count := count + len(part.bases) * math.prod(step.order for step in steps))
        for coordinates in product(*(step.representatives for step in steps)):
            element = part.series.decode(coordinates)
            bits = [bit for each, point in zip(elements, coordinates, strict=False) for bit in each.now(point)]
            if len(level.parts) > 1:
                bits.append(part_of.bits[number])
            for which, base in enumerate(part.bases):
                when = (*bits, orbit.bits[which]) if level.orbits > 1 else tuple(bits)
                tiles.setdefault(element[base], []).append(when)
    unit = one_of(tiles, range(level.level.tiles))
    network.add([unit])
    return unit.bits
