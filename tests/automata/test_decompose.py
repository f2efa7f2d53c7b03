from itertools import product

import numpy
import pytest
from group_cases import GROUPS, elements, transformations
from hypothesis import given

from latchwork.automata import DecompositionTooLarge, Machine, degree, is_group_free
from latchwork.tasks import make_task
from machine_cases import machines, random_machine, semiautomaton

MAPS = tuple(product(range(3), repeat=3))
STAR_FREE = ("a", "(a|b)*", "(ab)*", "a*b*", "(a|b)*aab", "(a|b)*abba(a|b)*", "a{2,4}b", "(ab|ba)", "(b|ab*a)b*")
NOT_STAR_FREE = {"(aa)*": 2, "(aaa)*": 3, "(a{5})*": 5, "(a{4})*": 2, "(a{12})*": 3, "((a|b)(a|b))*": 2, "(b|ab*a)*": 2}


def monoid(machine: Machine) -> set[tuple[int, ...]]:
    """What words do to the states that are reached: all of it."""
    return elements([tuple(action) for action in machine.reachable().transitions.T.tolist()])


def is_aperiodic(maps) -> bool:
    """x, x^2, ... ends in a single map, for each x."""
    for x in maps:
        power = x
        for _ in range(len(x)):
            power = tuple(x[point] for point in power)
        if tuple(x[point] for point in power) != power:
            return False
    return True


def test_every_machine_of_three_states_and_two_symbols_against_its_monoid():
    found = set()
    for actions in product(MAPS, repeat=2):
        machine = semiautomaton(*actions)
        free = is_aperiodic(monoid(machine))
        assert is_group_free(machine) == free
        assert (degree(machine) == 1) == free
        found.add(degree(machine))
    assert found == {1, 2, 3}


@pytest.mark.parametrize("states", [4, 5])
def test_random_machines_against_their_monoid(states):
    answers = set()
    for seed in range(60):
        machine = random_machine(seed, states)
        answers.add(is_group_free(machine))
        assert is_group_free(machine) == is_aperiodic(monoid(machine))
    assert answers == {True, False}


@pytest.mark.parametrize("pattern", STAR_FREE)
def test_a_star_free_language_has_no_group(pattern):
    machine = Machine.from_regex(pattern, "ab")
    assert is_group_free(machine)
    assert degree(machine) == 1


@pytest.mark.parametrize("pattern", NOT_STAR_FREE)
def test_a_language_that_counts_has_a_group(pattern):
    machine = Machine.from_regex(pattern, "ab")
    assert not is_group_free(machine)
    assert degree(machine) == NOT_STAR_FREE[pattern]


@pytest.mark.parametrize("name", GROUPS)
def test_the_degree_of_a_group_is_that_of_its_largest_factor(name):
    generators, _, _, expected = GROUPS[name]
    if "x" in name or name == "C6 on 5 points":  # several orbits: a machine for each, side by side
        machines = [Machine(*_table(generators), start) for start in range(len(generators[0]))]
        assert max(degree(each) for each in machines) == expected
    else:
        assert degree(Machine(*_table(generators))) == expected


def _table(generators):
    table = numpy.array(generators).T
    return table, table


@pytest.mark.parametrize(("n", "expected"), [(2, 2), (3, 3), (4, 3), (5, 5), (6, 6)])
def test_all_maps_of_n_points_hold_all_permutations(n, expected):
    assert degree(transformations(n)) == expected
    assert not is_group_free(transformations(n))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latching(4)", 1), ("sequences(2)", 1), ("sequences(3, balanced)", 1), ("fflm(0.8)", 1),
        ("induction_heads(4)", 1), ("parity", 2), ("cyclic(5)", 5), ("cyclic(6)", 3), ("word_problem(S3)", 3),
        ("word_problem(A4)", 3), ("word_problem(A5)", 5), ("word_problem(S5)", 5), ("even_pairs", 1),
        ("cycle_navigation", 5), ("modular_arithmetic", 5), ("tomita(1)", 1), ("tomita(2)", 1), ("tomita(3)", 2),
        ("tomita(4)", 1), ("tomita(5)", 2), ("tomita(6)", 3), ("tomita(7)", 1),
    ],
)  # fmt: skip
def test_the_degree_of_a_task(name, expected):
    machine = Machine.from_task(make_task(name)).minimise()
    assert degree(machine) == expected
    assert is_group_free(machine) == (expected == 1)


def test_a_machine_is_taken_as_it_is_but_for_states_that_are_not_reached():
    swap = Machine.from_table([[1], [0]], [[0], [0]])  # always 0, but it counts
    assert degree(swap) == 2
    assert degree(swap.minimise()) == 1
    assert is_group_free(Machine.from_table([[0], [2], [1]], [[0]] * 3))


@given(machines(states=5, symbols=2))
def test_the_function_needs_no_more_than_the_machine(machine):
    assert degree(machine.minimise()) <= degree(machine)


def test_a_huge_monoid_is_no_obstacle_and_too_many_sets_are_an_error():
    assert degree(transformations(10)) == 10  # 10^10 maps, 1023 sets
    with pytest.raises(
        DecompositionTooLarge, match=r"1,00. sets of states and no end; minimise .* by max_sets"
    ) as error:
        is_group_free(transformations(11), max_sets=1000)
    assert error.value.reached > 1000
    with pytest.raises(DecompositionTooLarge, match=r"50,00. sets of states"):
        is_group_free(transformations(40))
