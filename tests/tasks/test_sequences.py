from itertools import product

import numpy
import pytest

from latchwork.tasks import Sequences
from latchwork.tasks.automaton import run

VARIANTS = ("defined", "published", "balanced")


@pytest.mark.parametrize("n", [2, 3, 4, 8, 16])
def test_the_vocabulary_is_that_of_the_paper_without_its_special_token(n):
    task = Sequences(n)
    assert task.vocabulary == 4 * n + 18
    assert (task.resets, task.others, task.answers) == (4 * n, 4 * n + 4, 4 * n + 14)


def test_the_oracle_knows_a_hand_made_case():
    task = Sequences(2)  # set tokens 0 1, 2 3 of the first sequence, 4 5, 6 7 of the second; resets 8 9, 10 11
    tokens = [2, 0, 12, 3, 7, 5, 6, 8, 3, 1, 2, 11, 6]
    matched = [0, 0, 0, 1, 1, 1, 3, 2, 2, 2, 3, 1, 1]
    assert task.oracle(tokens) == [task.answers + each for each in matched]


def test_as_published_two_events_match():
    task = Sequences(3, "published")
    assert task.oracle([0, 2]) == [task.answers, task.answers + 1]


@pytest.mark.parametrize(("n", "variant"), [(1, "defined"), (2, "defined"), (3, "published")])
def test_the_automaton_agrees_with_the_oracle_on_all_short_words(n, variant):
    task = Sequences(n, variant)
    letters = range(0, task.others + 1, 2)  # of each event and each reset the first token; an irrelevant one
    words = numpy.array(list(product(letters, repeat=4)))
    successor, answer = task.automaton()
    answers, _ = run(successor, answer, numpy.zeros(len(words), int), words)
    assert answers.tolist() == [task.oracle(word) for word in words.tolist()]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("split", "rows", "length"), [("train", 200, 512), ("validation", 200, 1536)])
def test_sets_and_resets_are_as_frequent_as_they_should(variant, split, rows, length):
    task = Sequences(3, variant)
    tokens = task.sample(split, 1, rows, length).tokens
    p_set, p_reset = task.probabilities(split)
    if variant == "defined":
        assert (p_set, p_reset) == {"train": (0.5, 0.02), "validation": (0.3, 0.002)}[split]
    for low, high, p in ((0, task.resets, p_set), (task.resets, task.others, p_reset)):
        drawn = tokens[(tokens >= low) & (tokens < high)]
        expected = p * tokens.numel()
        assert abs(len(drawn) - expected) <= 5 * expected**0.5
        each = expected / (high - low)
        assert ((drawn - low).bincount(minlength=high - low) - each).abs().max() <= 5 * each**0.5
    assert tokens.max() < task.answers


def test_as_published_no_reset_is_drawn():
    task = Sequences(4, "published")
    for split in task.splits:
        assert task.probabilities(split)[1] == 0.0
        tokens = task.sample(split, 0, rows=50, length=1024).tokens
        assert not ((tokens >= task.resets) & (tokens < task.others)).any()


@pytest.mark.parametrize(("n", "percent"), [(2, 47), (3, 63), (4, 74), (8, 90.5), (16, 97)])
def test_as_published_a_constant_is_right_at_evaluation(n, percent):
    task = Sequences(n, "published")
    assert task.expected_constant("evaluation", 1_024_000) * 100 == pytest.approx(percent, abs=0.7)


@pytest.mark.parametrize(("n", "percent"), [(2, 52), (3, 88), (4, 98.5), (8, 100)])
def test_as_defined_a_constant_is_right_at_evaluation_too(n, percent):
    assert Sequences(n).expected_constant("evaluation", 2**20) * 100 == pytest.approx(percent, abs=0.7)


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_balanced_has_no_answer_above_half(n, split):
    task = Sequences(n, "balanced")
    sizes = task.splits[split]
    assert task.expected_constant(split, (sizes.shortest + sizes.longest) // 2) < 0.45
    assert task.best_constant(split, rows=200) < 0.5


@pytest.mark.parametrize("n", [2, 3])
def test_balanced_has_no_answer_above_half_at_evaluation(n):
    assert Sequences(n, "balanced").expected_constant("evaluation", 2**20) < 0.5


@pytest.mark.parametrize("length", [100, 384])
def test_drawn_answers_are_as_frequent_as_the_chain_says(length):
    task = Sequences(2, "defined")
    targets = task.sample("train", 3, rows=4000, length=length).targets
    counted = (targets - task.answers).flatten().bincount(minlength=4).numpy() / targets.numel()
    assert counted == pytest.approx(task.shares("train", length), abs=0.02)


def test_what_cannot_be_balanced_is_refused():
    with pytest.raises(ValueError, match=r"variant 'balanced' is not possible for n = 16: .* 'train'"):
        Sequences(16, "balanced").sample("train", 0, rows=1)


def test_bad_input_names_its_argument():
    with pytest.raises(ValueError, match="n must be at least 1, and 2 as published; got 0"):
        Sequences(0)
    with pytest.raises(ValueError, match="n must be at least 1, and 2 as published; got 1"):
        Sequences(1, "published")
    with pytest.raises(ValueError, match=r"variant must be .*; got 'other'"):
        Sequences(4, "other")
