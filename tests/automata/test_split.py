from itertools import product

import pytest
from group_cases import GROUPS, MACHINES, MAPS, side_by_side, transformations
from hypothesis import given

from latchwork.automata import DecompositionTooLarge, Machine, degree, holonomy
from latchwork.automata.split import SplitCascade, TilePlace, split
from latchwork.tasks import make_task
from machine_cases import machines, semiautomaton

MORE = {
    "2^3 : PSL(3, 2)": semiautomaton(*GROUPS["2^3 : PSL(3, 2)"][0]),
    "A5, and a reset": semiautomaton(*GROUPS["A5"][0], [0] * 5),
    **{
        name: Machine.from_task(make_task(name)).minimise()
        for name in ("word_problem(S4)", "cyclic(12)", "word_problem(A5)")
    },
}
MANY = {**MACHINES, **MORE}


def check(cascade: SplitCascade, tuples: int) -> None:
    """From all places reached, or the first so many, the cascade moves as the machine does."""
    machine = cascade.holonomy.machine
    assert cascade.decode(cascade.start) == machine.start
    seen = {cascade.start}
    for here in (waiting := [cascade.start]):
        following = [cascade.step(here, symbol) for symbol in range(machine.n_symbols)]
        assert [cascade.decode(each) for each in following] == machine.transitions[cascade.decode(here)].tolist()
        for places in following:
            if places not in seen and len(seen) < tuples:
                seen.add(places)
                waiting.append(places)
        for level, place in zip(cascade.levels, here, strict=True):
            assert 0 <= place.orbit < level.orbits
            assert [sorted(each) for each in place.element] == [list(range(points)) for points in level.points]


@pytest.mark.parametrize("start", range(0, 27, 9))
def test_every_semiautomaton_of_three_states_has_a_cascade_of_its_degree(start):
    for actions in product(MAPS[start : start + 9], MAPS):
        machine = semiautomaton(*actions)
        cascade = split(holonomy(machine))
        check(cascade, tuples=60)
        assert cascade.degree == degree(machine)


@pytest.mark.parametrize("name", MANY)
def test_a_split_cascade_runs_its_machine_and_has_its_degree(name):
    machine = MANY[name]
    cascade = split(holonomy(machine))
    check(cascade, tuples=1000)
    assert cascade.degree == degree(machine)


@given(machines(states=6))
def test_any_machine_has_a_split_cascade_of_its_degree(machine):
    cascade = split(holonomy(machine))
    check(cascade, tuples=100)
    assert cascade.degree == degree(machine)


@pytest.mark.parametrize("name", ["T4", "S5", "modular_arithmetic", "random 6, 2", "sequences(2)"])
def test_a_tile_is_found_at_its_place_and_permutations_move_it(name):
    for level in split(holonomy(MANY[name])).levels:
        for part, nodes in enumerate(level.level.classes):
            tiles = range(len(level.parts[part].elements))
            places = [level.encode(part, tile) for tile in tiles]
            assert [level.decode(part, place) for place in places] == list(tiles)
            for (_, _, new), action in level.level.actions.items():
                if new in nodes:
                    after = [level.decode(part, level.act(part, action, place)) for place in places]
                    assert after == [action.images[tile] for tile in tiles]


def test_a_group_that_moves_not_all_tiles_keeps_an_orbit():
    swaps = side_by_side([(1, 0)], [(1, 2, 0)])
    machine = semiautomaton(*swaps, [0] * 5, [2] * 5)
    (level,) = split(holonomy(machine)).levels
    assert level.orbits == 2
    assert sorted(level.points) == [2, 3]


def test_a_level_without_a_group_is_one_number():
    cascade = split(holonomy(Machine.from_task(make_task("latching(4)"))))
    assert cascade.degree == 1
    assert [level.points for level in cascade.levels] == [()] * len(cascade.levels)
    assert [level.orbits for level in cascade.levels] == [level.level.tiles for level in cascade.levels]
    assert cascade.start[0].element == TilePlace(0, ()).element


def test_groups_too_large_to_split_are_an_error():
    with pytest.raises(DecompositionTooLarge, match="100 elements of a group and no end"):
        split(holonomy(transformations(5)), max_elements=100)
