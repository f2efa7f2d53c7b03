"""The laws of steps, bit for bit. A zero of either sign is one value here; the scan writes it as +0."""

from functools import reduce

import pytest
from scan_cases import DRAWS, assert_same, continuous, extreme, tied

from latchwork.ops.algebra import apply, collapse, compose, identity, odot, oplus, otimes

FINITE_OR_INFINITE = [continuous, tied, extreme]
UNITS = [(7,), (3, 1), (3, 2), (2, 5)]  # of s: (D,) for degree one, (U, N) for degree n


def assert_equal(actual, expected):
    assert_same(actual + 0.0, expected + 0.0)


def assert_same_step(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert_equal(one, other)


def steps(count, unit, draw, *batch):
    return [(draw(*batch, *unit, *unit[1:]), draw(*batch, *unit)) for _ in range(count)]


each_draw = pytest.mark.parametrize("draw", DRAWS)
each_number = pytest.mark.parametrize("draw", FINITE_OR_INFINITE)
each_unit = pytest.mark.parametrize("unit", UNITS, ids=str)


@each_draw
@each_unit
def test_compose_is_associative(unit, draw):
    f, g, h = steps(3, unit, draw, 100)
    assert_same_step(compose(compose(f, g), h), compose(f, compose(g, h)))


@each_draw
@each_unit
def test_a_composed_step_is_one_step_after_the_other(unit, draw):
    f, g = steps(2, unit, draw, 100)
    x = draw(100, *unit)
    assert_equal(apply(*compose(f, g), x), apply(*g, apply(*f, x)))


@each_number
@each_unit
def test_the_infinite_identity_changes_nothing_on_either_side(unit, draw):
    (step,) = steps(1, unit, draw, 100)
    x, same = draw(100, *unit), identity(*step)
    assert_equal(apply(*same, x), x)
    assert_same_step(compose(same, step), step)
    assert_same_step(compose(step, same), step)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 2.0)])
@each_number
@each_unit
def test_an_identity_of_low_and_high_changes_nothing_between_them(unit, draw, low, high):
    step, x = [a.clamp(low, high) for a in steps(1, unit, draw, 100)[0]], draw(100, *unit).clamp(low, high)
    same = identity(*step, low=low, high=high)
    assert {*same[0].unique().tolist(), *same[1].unique().tolist()} == {low, high}
    assert_equal(apply(*same, x), x)
    assert_same_step(compose(same, step), step)
    assert_same_step(compose(step, same), step)


@each_draw
def test_minimum_and_maximum_distribute_over_each_other(draw):
    a, b, c = draw(3, 1000)
    assert_equal(odot(a, oplus(b, c)), oplus(odot(a, b), odot(a, c)))
    assert_equal(oplus(a, odot(b, c)), odot(oplus(a, b), oplus(a, c)))


@each_draw
@pytest.mark.parametrize(("i", "j", "k"), [(1, 1, 1), (2, 2, 2), (3, 4, 5), (5, 1, 3)])
def test_the_matrix_product_distributes_over_the_maximum(i, j, k, draw):
    a, b, c = draw(20, i, j), draw(20, j, k), draw(20, j, k)
    assert_equal(otimes(a, oplus(b, c)), oplus(otimes(a, b), otimes(a, c)))
    assert_equal(otimes(oplus(b, c).mT, a.mT), oplus(otimes(b.mT, a.mT), otimes(c.mT, a.mT)))


@each_draw
@pytest.mark.parametrize(("i", "j", "k", "l"), [(1, 1, 1, 1), (2, 2, 2, 2), (2, 3, 4, 5), (5, 1, 3, 2)])
def test_the_matrix_product_is_associative(i, j, k, l, draw):  # noqa: E741
    a, b, c = draw(20, i, j), draw(20, j, k), draw(20, k, l)
    assert_equal(otimes(otimes(a, b), c), otimes(a, otimes(b, c)))


def test_the_matrix_product_is_the_largest_of_the_minima():
    a, b = tied(4, 3), continuous(3, 5)
    for i in range(4):
        for j in range(5):
            assert otimes(a, b)[i, j] == max(min(x, y) for x, y in zip(a[i], b[:, j], strict=True))


@each_draw
@each_unit
@pytest.mark.parametrize("T", [1, 2, 3, 4, 7, 8, 13])
def test_collapse_is_the_fold_of_compose(T, unit, draw):
    [(r, s)] = steps(1, unit, draw, 2, T)
    assert_same_step(collapse(r, s), reduce(compose, zip(r.unbind(1), s.unbind(1), strict=True)))


@each_unit
def test_no_steps_collapse_to_the_identity(unit):
    [(r, s)] = steps(1, unit, continuous, 2, 0)
    x = continuous(2, *unit)
    assert_equal(apply(*collapse(r, s), x), x)
