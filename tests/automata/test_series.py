from math import prod

import pytest
from group_cases import GROUPS, elements
from hypothesis import given
from hypothesis import strategies as st

from latchwork.automata import DecompositionTooLarge
from latchwork.automata.series import inverse, multiply, series

SMALL = [name for name, (_, order, _, _) in GROUPS.items() if order <= 1500]


def is_simple(group) -> bool:
    """Whether the conjugates of each element but the identity generate the whole group."""
    identity = tuple(range(len(next(iter(group)))))
    seen = {identity}
    for element in group:
        if element not in seen:
            conjugates = {multiply(multiply(inverse(g), element), g) for g in group}
            if len(elements(sorted(conjugates))) < len(group):
                return False
            seen |= conjugates
    return True


@pytest.mark.parametrize("name", SMALL)
def test_coordinates_tell_each_element_and_multiply_as_it_does(name):
    generators, order, _, _ = GROUPS[name]
    split = series(generators, len(generators[0]))
    every = sorted(elements(generators))
    codes = {split.encode(element) for element in every}
    assert len(codes) == order == prod(step.order for step in split.steps)
    some = every[:: max(1, order // 60)]
    for g in every if order <= 130 else some:
        assert split.decode(split.encode(g)) == g
        for h in [*generators, *some]:
            assert split.move(split.encode(g), h) == split.encode(multiply(g, h))


@pytest.mark.parametrize("name", SMALL)
def test_each_coordinate_is_a_simple_group_on_the_fewest_points(name):
    generators, _, factors, degree = GROUPS[name]
    split = series(generators, len(generators[0]))
    assert sorted((step.order, step.points) for step in split.steps) == sorted(factors)
    assert max(step.points for step in split.steps) == degree
    for step in split.steps:
        group = set(step.representatives)
        assert {len(element) for element in group} == {step.points}
        assert group == set(step.images.values())
        assert is_simple(group)
        some = sorted(step.images)[:: max(1, len(step.images) // 40)]
        for g in some:  # the images multiply as the elements do
            for h in some:
                assert step.images[multiply(g, h)] == multiply(step.images[g], step.images[h])


@pytest.mark.parametrize("name", ["D4", "S4", "A5", "S5", "PSL(2, 7)"])
def test_a_group_on_its_own_elements_is_split_into_the_same_factors(name):
    generators, order, factors, _ = GROUPS[name]
    every = sorted(elements(generators))
    number = {each: k for k, each in enumerate(every)}
    regular = [tuple(number[multiply(each, g)] for each in every) for g in generators]
    split = series(regular, order)
    assert sorted((step.order, step.points) for step in split.steps) == sorted(factors)
    coordinates = split.encode(tuple(range(order)))
    product = tuple(range(order))
    for g in regular * 5:
        coordinates, product = split.move(coordinates, g), multiply(product, g)
        assert split.decode(coordinates) == product


@pytest.mark.parametrize("name", ["S4", "S5", "A5 x C2", "D6"])
def test_a_step_sees_the_element_and_the_steps_before_it_alone(name):
    generators, _, _, _ = GROUPS[name]
    split = series(generators, len(generators[0]))
    inputs = split.inputs(generators)
    for g in elements(generators):
        code = split.encode(g)
        for h in generators:
            element = h
            for k, (step, after) in enumerate(zip(split.steps, split.move(code, h), strict=True)):
                assert element in inputs[k]
                assert element in step.images  # an element of G_k
                assert after == multiply(code[k], step.images[element])
                element = step.rest(element, code[k])


@given(st.lists(st.permutations(range(5)), max_size=3))
def test_any_group_of_five_points(generators):
    generators = [tuple(each) for each in generators]
    split = series(generators, 5)
    every = elements(generators) if generators else {tuple(range(5))}
    assert len({split.encode(element) for element in every}) == len(every)
    for g in every:
        assert split.decode(split.encode(g)) == g
        for h in generators:
            assert split.decode(split.move(split.encode(g), h)) == multiply(g, h)


def test_what_is_no_element_is_named():
    with pytest.raises(ValueError, match=r"element must be one of the group's 12; got \(1, 0, 2, 3\)"):
        series(GROUPS["A4"][0], 4).encode((1, 0, 2, 3))


def test_a_group_that_is_too_large_says_so():
    with pytest.raises(
        DecompositionTooLarge, match="20,000 elements of a group and no end; allow more by max_elements"
    ):
        series(GROUPS["S8"][0], 8)
    with pytest.raises(DecompositionTooLarge, match="100 elements of a group"):
        series(GROUPS["S5"][0], 5, max_elements=100)
