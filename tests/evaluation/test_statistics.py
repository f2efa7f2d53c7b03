import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchwork.evaluation.statistics import (
    accuracy_interval,
    bootstrap,
    by_sequence,
    enough_data,
    enough_seeds,
    next_seed_bound,
    wanted_margin,
    wilson,
)

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(SHARES)
def test_an_interval_holds_its_mean_and_lies_within_the_values(values):
    interval = bootstrap(values, resamples=200)
    assert min(values) - 1e-12 <= interval.low <= interval.mean + 1e-12
    assert interval.mean - 1e-12 <= interval.high <= max(values) + 1e-12
    assert interval.margin >= 0


def test_the_bootstrap_is_seeded_and_a_wider_confidence_gives_a_wider_interval():
    values = [0.2, 0.5, 0.9, 0.4]
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values, 0.99).margin > bootstrap(values, 0.5).margin


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says():
    random = numpy.random.default_rng(0)
    samples = random.normal(0.5, 0.1, (200, 30))
    held = [(low := bootstrap(list(each), 0.9, 500)).low <= 0.5 <= low.high for each in samples]
    assert 0.8 < numpy.mean(held) < 0.97


def test_no_values_is_an_error():
    with pytest.raises(ValueError, match="values must not be empty"):
        bootstrap([])


@pytest.mark.parametrize(("mean", "margin"), [(0.0, 0.2), (0.49, 0.2), (0.5, 0.1), (0.8, 0.05), (0.9, 0.01), (1, 0.01)])
def test_the_better_the_accuracy_the_narrower_the_interval_wanted(mean, margin):
    assert wanted_margin(mean) == margin


def test_enough_data_means_a_narrow_interval():
    assert enough_data([1.0, 1.0, 1.0])
    assert not enough_data([1.0, 0.95, 0.99])
    assert enough_data([0.25, 0.3, 0.2])
    assert not enough_data([0.0, 0.9, 0.3])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_the_bound_for_the_next_seed_is_above_the_mean_and_at_most_one(values):
    assert min(1.0, float(numpy.mean(values))) - 1e-12 <= next_seed_bound(values) <= 1.0


def test_the_next_seed_stays_below_its_bound_as_often_as_it_says():
    random = numpy.random.default_rng(0)
    samples = random.normal(0.5, 0.05, (4000, 4))
    below = [each[3] <= next_seed_bound(list(each[:3]), 0.9) for each in samples]
    assert abs(numpy.mean(below) - 0.9) < 0.02


def test_the_seed_rule_can_say_no_and_yes():
    assert not enough_seeds([1.0, 1.0])
    assert enough_seeds([1.0, 1.0, 1.0])
    assert enough_seeds([0.3, 1.0, 0.5])  # nothing is better than perfect
    assert not enough_seeds([0.3, 0.9, 0.5])
    assert enough_seeds([0.3, 0.9, 0.5] * 3 + [0.2])  # ten
    assert enough_seeds([0.9, 0.9001, 0.9])
    assert enough_seeds([0.5], minimum=1, maximum=1)


@pytest.mark.parametrize(
    ("successes", "bounds"), [(10, (0.72, 1.0)), (9, (0.60, 0.98)), (7, (0.40, 0.89)), (6, (0.31, 0.83))]
)
def test_wilsons_interval_is_the_papers(successes, bounds):
    assert tuple(round(each, 2) for each in wilson(successes, 10)) == bounds


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 16), (16, 16), (1, 10**7), (7, 8)])
def test_wilsons_interval_is_scipys(successes, trials):
    from scipy.stats import binomtest

    expected = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert wilson(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (-1, 2), (3, 2), (float("nan"), 2)])
def test_wilson_wants_trials(successes, trials):
    with pytest.raises(ValueError, match="successes must be 0 to trials"):
        wilson(successes, trials)


def test_the_interval_of_dependent_answers_covers_the_truth_about_as_often_as_it_says():
    random = numpy.random.default_rng(0)
    held = 0
    for _ in range(300):  # 20 sequences of 50 answers; each is right to a share of its own, 0.6 on average
        right = random.binomial(50, random.beta(3, 2, 20))
        found = accuracy_interval(by_sequence([50] * 20, right.tolist()), 20)
        held += found.low <= 0.6 <= found.high
    assert 0.91 < held / 300 < 0.99


def test_answers_that_do_not_depend_on_each_other_count_nearly_one_each():
    right = numpy.random.default_rng(0).binomial(1000, 0.9, 100).tolist()
    found = accuracy_interval(by_sequence([1000] * 100, right), 100)
    low, high = wilson(sum(right), 100_000)
    assert found.high - found.low == pytest.approx(high - low, rel=0.25)


def test_the_sums_of_two_data_sets_are_those_of_both():
    one, two, both = (by_sequence(*each) for each in (([3], [1]), ([4, 5], [4, 0]), ([3, 4, 5], [1, 4, 0])))
    assert {name: one[name] + two[name] for name in one} == both


def test_one_wrong_answer_among_millions_is_not_lost():
    asked = [1 << 20] * 16
    found = accuracy_interval(by_sequence(asked, [(1 << 20) - 1, *asked[1:]]), 16)
    assert found.low < found.mean < found.high < 1
    assert found.high - found.low < 1e-6


def test_scipy_that_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    with pytest.raises(ImportError, match=r"pip install 'latchwork\[experiments\]'"):
        bootstrap([0.0, 1.0])
