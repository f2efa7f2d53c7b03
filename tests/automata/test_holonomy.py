from dataclasses import replace
from itertools import product

import pytest
from group_cases import MACHINES, MAPS, transformations
from hypothesis import given

from latchwork.automata import Action, DecompositionTooLarge, Holonomy, Machine, holonomy, is_group_free
from machine_cases import machines, semiautomaton, slow_run, words


def states_of_words(machine: Machine, longest: int):
    """Each word up to that length, and the state that it leads to."""
    yield (), machine.start
    for word in words(machine.n_symbols, longest):
        state = machine.start
        for symbol in word:
            state = int(machine.transitions[state, symbol])
        yield word, state


def check(cascade: Holonomy, tuples: int = 5000) -> None:
    """The cascade moves as its machine from all coordinates that are reached, and its levels are as they should be."""
    assert cascade.is_right()
    machine = cascade.machine
    assert cascade.decode(cascade.start) == machine.start
    try:
        walk = cascade.walk(tuples)
    except DecompositionTooLarge:
        pass
    else:
        for here, following in walk.items():
            state = cascade.decode(here)
            assert [cascade.decode(each) for each in following] == machine.transitions[state].tolist()
            assert all(0 <= c < level.tiles for c, level in zip(here, cascade.levels, strict=True))
    for level in cascade.levels:
        for action in level.actions.values():
            images = action.images
            assert len(images) == level.tiles
            if action.kind == "identity":
                assert images == tuple(range(level.tiles))
            elif action.kind == "permutation":
                assert sorted(images) == list(range(level.tiles))
                assert images != tuple(range(level.tiles))
                assert any(images in group for group in level.groups)
            else:
                assert action.kind == "reset"
                assert len(set(images)) == 1
        assert level.has_group == any(action.kind == "permutation" for action in level.actions.values())
        assert level.tiles >= 2


@pytest.mark.parametrize("start", range(0, 27, 9))
def test_every_semiautomaton_of_three_states_and_two_symbols(start):
    for actions in product(MAPS[start : start + 9], MAPS):
        machine = semiautomaton(*actions)
        cascade = holonomy(machine)
        check(cascade)
        assert cascade.is_group_free == is_group_free(machine)


@pytest.mark.parametrize("name", MACHINES)
def test_a_cascade_runs_its_machine(name):
    cascade = holonomy(MACHINES[name])
    check(cascade)
    assert cascade.is_group_free == is_group_free(MACHINES[name])


@pytest.mark.parametrize("name", ["T3", "T4", "S3", "D4", "A5", "S5", "random 7, 0", "random 7, 1", "random 6, 2"])
def test_a_cascade_equals_the_machine_on_all_words_up_to_seven(name):
    cascade = holonomy(MACHINES[name])
    machine = cascade.machine
    coordinates = {(): cascade.start}
    for word, state in states_of_words(machine, 7 if machine.n_symbols < 3 else 5):
        if word:
            coordinates[word] = cascade.step(coordinates[word[:-1]], word[-1])
            assert cascade.output(coordinates[word[:-1]], word[-1]) == slow_run(machine, word)[-1]
        assert cascade.decode(coordinates[word]) == state


@given(machines(states=7))
def test_any_machine_has_a_cascade(machine):
    check(holonomy(machine), tuples=200)


@given(machines(states=6))
def test_a_state_is_found_at_its_coordinates(machine):
    cascade = holonomy(machine)
    for state in range(cascade.machine.n_states):
        assert cascade.decode(cascade.encode(state)) == state


@pytest.mark.parametrize("name", ["T4", "sequences(2)", "random 7, 1", "random 6, 2", "modular_arithmetic"])
def test_a_level_sees_the_levels_before_it_alone(name):
    cascade = holonomy(MACHINES[name])
    walk = cascade.walk()
    depth = len(cascade.levels)
    assert depth > 1
    seen: dict = {}
    for here, following in walk.items():
        for symbol, after in enumerate(following):
            for level in range(depth):
                above = level, here[: level + 1], after[:level], symbol  # old with its own, new without
                assert seen.setdefault(above, after[level]) == after[level]
                path, new_path = cascade.path(here), cascade.path(after)
                action = cascade.levels[level].actions[path[level], symbol, new_path[level]]
                assert action.images[here[level]] == after[level]


def test_a_cascade_with_a_wrong_entry_is_not_right():
    cascade = holonomy(transformations(3))
    for depth, level in enumerate(cascade.levels):
        for triple in level.actions:
            for images in product(range(level.tiles), repeat=level.tiles):
                if images == level.actions[triple].images:
                    continue
                wrong = replace(level, actions={**level.actions, triple: Action("permutation", images)})
                levels = (*cascade.levels[:depth], wrong, *cascade.levels[depth + 1 :])
                try:
                    right = replace(cascade, levels=levels).is_right()
                except KeyError:  # it leads to sets that the next level has no entry for
                    right = False
                moved = [
                    level.actions[triple].images[c] != images[c]
                    for c in range(len(cascade.tiles[triple[0]]) if cascade.depth[triple[0]] == depth else level.tiles)
                ]
                used = cascade.depth[triple[2]] == depth
                assert right == (not used or not any(moved))


def test_the_sets_are_images_of_the_whole_and_tiles_the_largest_inside():
    for name in ("T4", "random 7, 1", "random 6, 2", "sequences(2)"):
        cascade = holonomy(MACHINES[name])
        machine = cascade.machine
        whole = frozenset(range(machine.n_states))
        images = {whole, *(frozenset([state]) for state in whole)}
        for each in (waiting := [whole]):
            for symbol in range(machine.n_symbols):
                image = frozenset(int(machine.transitions[state, symbol]) for state in each)
                if image not in images:
                    images.add(image)
                    waiting.append(image)
        for members, tiles in zip(cascade.sets, cascade.tiles, strict=True):
            assert frozenset(members) in images
            inside = {image for image in images if image < set(members)}
            largest = {image for image in inside if not any(image < other for other in inside)}
            assert {frozenset(cascade.sets[tile]) for tile in tiles} == largest


def test_the_levels_of_all_maps_of_four_points_are_groups_on_four_three_and_two():
    levels = holonomy(transformations(4)).levels
    assert [level.tiles for level in levels] == [4, 3, 2]
    assert all(level.has_group for level in levels)


def test_bad_coordinates_and_states_are_named():
    cascade = holonomy(transformations(3))
    with pytest.raises(ValueError, match=r"state must be in 0..2; got 3"):
        cascade.encode(3)
    with pytest.raises(ValueError, match=r"coordinates must be 2 numbers; got 1"):
        cascade.decode([0])
    with pytest.raises(ValueError, match=r"coordinates\[0\] must be in 0..2 here; got 3"):
        cascade.decode([3, 0])


def test_a_decomposition_that_is_too_large_says_so():
    with pytest.raises(DecompositionTooLarge, match=r"10. sets of states and no end; .* by max_sets"):
        holonomy(transformations(8), max_sets=100)
    with pytest.raises(DecompositionTooLarge, match=r"101 entries in the tables .* by max_triples"):
        holonomy(transformations(8), max_triples=100)
    with pytest.raises(DecompositionTooLarge, match="10 tuples of coordinates and no end; allow more by max_tuples"):
        holonomy(transformations(4)).walk(max_tuples=10)
