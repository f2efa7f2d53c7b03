import pytest
from group_cases import GROUPS, elements

from latchwork.automata import DecompositionTooLarge
from latchwork.automata.groups import Factor, permutation_group, simple_factors


@pytest.mark.parametrize("name", GROUPS)
def test_the_factors_of_a_group_are_those_of_the_books(name):
    generators, order, factors, _ = GROUPS[name]
    group = permutation_group(generators, len(generators[0]))
    assert group.order() == order
    assert sorted(simple_factors(group).elements()) == sorted(Factor(*each) for each in factors)


@pytest.mark.parametrize("name", ["D4", "S4", "A5", "S5", "A5 x C2"])
def test_the_factors_do_not_depend_on_the_points(name):
    """The group acts on its own elements."""
    generators, order, factors, _ = GROUPS[name]
    every = sorted(elements(generators))
    number = {each: k for k, each in enumerate(every)}
    regular = [[number[tuple(g[point] for point in each)] for each in every] for g in generators]
    group = permutation_group(regular, order)
    assert sorted(simple_factors(group).elements()) == sorted(Factor(*each) for each in factors)


def test_generators_that_add_nothing_are_left_out():
    generators = elements(GROUPS["S4"][0])
    group = permutation_group(generators, 4)
    assert group.order() == 24
    assert len(group.generators) <= 4  # at least doubled by each
    assert permutation_group([], 3).order() == 1
    assert simple_factors(permutation_group([], 3)) == {}


def test_a_group_that_is_not_known_is_refused(monkeypatch):
    monkeypatch.setattr("latchwork.automata.groups._simple_orders", dict)
    with pytest.raises(DecompositionTooLarge, match="60 elements of a simple group and no end; the fewest points"):
        simple_factors(permutation_group(GROUPS["A5"][0], 5))
