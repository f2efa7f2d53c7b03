from itertools import product

import numpy
import pytest
import torch
from task_cases import AUTOMATA, SPLITS

from latchwork.tasks import IGNORE, Automaton, make_task
from latchwork.tasks.automaton import run, settled


def words(task: Automaton, length: int) -> numpy.ndarray:
    """All words of that length that may come, or 20,000 of them drawn evenly."""
    letters = task.successor.shape[1]
    if letters**length <= 20_000:
        every = numpy.array(list(product(range(letters), repeat=length)))
    else:
        every = numpy.random.default_rng(0).integers(letters, size=(20_000, length))
    state, allowed = numpy.full(len(every), task.start), numpy.full(len(every), True)
    for step in range(length):
        state = task.successor[state, every[:, step]]
        allowed &= state >= 0
    return every[allowed]


@pytest.mark.parametrize("name", AUTOMATA)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_automaton_agrees_with_the_oracle_on_all_short_words(name, length):
    task = make_task(name)
    tokens = words(task, length)[:4000]
    answers, _ = run(task.successor, task.output, numpy.full(len(tokens), task.start), tokens)
    assert answers.tolist() == [task.oracle(word) for word in tokens.tolist()]


@pytest.mark.parametrize("name", ["even_pairs", *(f"tomita({number})" for number in range(1, 8))])
def test_an_automaton_of_bits_agrees_with_the_oracle_on_all_words_of_eleven(name):
    task = make_task(name)
    tokens = words(task, 11)
    answers, _ = run(task.successor, task.output, numpy.full(len(tokens), task.start), tokens)
    assert answers.tolist() == [task.oracle(word) for word in tokens.tolist()]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_steps_at_which_nothing_moves_may_be_left_out(rows):
    generator = numpy.random.default_rng(0)
    successor = numpy.array([[0, 1, 0, 0], [1, 2, 0, 1], [2, 2, 0, 2]])  # 0 and 3 move nothing
    output, state = numpy.array([7, 8, 9]), generator.integers(3, size=rows)
    tokens = generator.choice([0, 3, 0, 3, 0, 3, 0, 3, 1, 2], size=(rows, 50))
    answers, last = run(successor, output, state, tokens)
    for row in range(rows):
        now = state[row]
        for step in range(50):
            now = successor[now, tokens[row, step]]
            assert answers[row, step] == output[now]
        assert last[row] == now


@pytest.mark.parametrize("name", AUTOMATA)
def test_no_constant_is_nearly_always_right(name):
    task = make_task(name)
    least = 0.95 if name == "regular((a|b)*aab, abc)" else 0.78
    for split, length in (("train", None), ("evaluation", 4096)):
        assert task.best_constant(split, rows=200, length=length) < least


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (3, 3)])
def test_a_run_leaves_its_arguments_alone(shape):
    tokens, state = numpy.ones(shape, numpy.intp), numpy.ones(shape[0], numpy.intp)
    run(numpy.array([[0, 1], [1, 0]]), numpy.array([0, 1]), state, tokens)
    assert (tokens == 1).all()
    assert (state == 1).all()


def test_an_answer_is_settled_where_no_other_can_come():
    assert settled(*automaton("tomita(1)")).tolist() == [False, True]
    assert settled(*automaton("tomita(7)")).tolist() == [False] * 4 + [True]
    assert not settled(*automaton("tomita(5)")).any()
    assert not settled(*automaton("modular_arithmetic")).any()
    assert settled(numpy.array([[1], [1]]), numpy.array([0, IGNORE])).tolist() == [True, True]


def automaton(name: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    task = make_task(name)
    assert isinstance(task, Automaton)
    return task.successor, task.output


def test_a_language_is_left_about_halfway():
    targets = make_task("tomita(1)").sample("train", 0, rows=4000, length=40).targets
    assert targets.float().mean() == pytest.approx(0.5, abs=0.04)
    assert targets[:, 0].float().mean() > 0.9
    assert targets[:, -1].float().mean() < 0.1


def test_letters_that_may_come_are_drawn_evenly():
    task = Automaton([[0, 1, -1], [0, 1, 2], [0, 1, 2]], [0, 1, 2], start=1, splits=SPLITS)
    tokens = task.sample("train", 0, rows=3000, length=30).tokens
    before, after = tokens[:, :-1].flatten(), tokens[:, 1:].flatten()
    for letter, expected in ((0, [1 / 2, 1 / 2, 0]), (1, [1 / 3] * 3), (2, [1 / 3] * 3)):
        following = after[before == letter].bincount(minlength=3).double()
        assert (following / following.sum()).tolist() == pytest.approx(expected, abs=0.015)


def test_elements_of_a_group_are_drawn_evenly():
    tokens = make_task("word_problem(A5)").sample("train", 0, rows=2000, length=60).tokens
    counts = tokens.flatten().bincount(minlength=60).double()
    assert (counts - 2000).abs().max() < 5 * 2000**0.5


def test_answers_may_be_any_token_and_not_every_state_need_ask():
    task = Automaton([[1, 0], [0, 1]], [IGNORE, 5])
    assert task.vocabulary == 6
    targets = task.sample("train", 0, rows=20, length=20).targets
    assert set(targets.unique().tolist()) == {IGNORE, 5}
    assert torch.equal(
        targets, torch.tensor([task.oracle(row) for row in task.sample("train", 0, 20, 20).tokens.tolist()])
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([0, 1], [0, 1]), "successor must be .states, letters."),
        (([[2, 0], [0, 0]], [0, 1]), r"successor must hold states 0..1, or -1; got 0..2"),
        (([[0, 0], [-1, -1]], [0, 1]), "successor must allow a letter in every state; state 1 has none"),
        (([[0, 0], [1, 1]], [0, 1, 2]), r"output must be \(states,\) = \(2,\); got \(3,\)"),
        (([[0, 0], [1, 1]], [0, -1]), "output must hold answers of at least 0, or IGNORE"),
    ],
)
def test_bad_input_names_its_argument(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        Automaton(*arguments)


def test_the_start_is_a_state():
    with pytest.raises(ValueError, match=r"start must be a state, 0..1; got 2"):
        Automaton([[0, 1], [1, 0]], [0, 1], start=2)
