from itertools import product

import numpy
import pytest

from latchwork.automata import Machine
from latchwork.tasks import IGNORE, Automaton, Split, Task, make_task
from machine_cases import slow_run

TASKS = (
    "latching(1)", "latching(4)", "latching(4, all)", "sequences(1)", "sequences(2)", "sequences(3, published)",
    "sequences(3, balanced)", "induction_heads(1)", "induction_heads(16)", "fflm(0.8)",
    "fflm(0.0)", "parity", "cyclic(5)", "word_problem(S3)",
    "word_problem(A5)", "word_problem(S5)", "even_pairs", "cycle_navigation", "modular_arithmetic",
    *(f"tomita({number})" for number in range(1, 8)), "regular((ab)*)", "regular((a|b)*aab, abc)", "regular(a*)",
)  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_the_machine_gives_the_answers_of_the_oracle(name):
    task = make_task(name)
    machine = Machine.from_task(task)
    for length in (3, 12, 47):
        tokens, targets = (each.numpy() for each in task.sample("train", seed=length, rows=20, length=length))
        answers = machine.run(tokens)
        assert (numpy.where(answers == task.vocabulary, IGNORE, answers) == targets).all()
        assert targets[0].tolist() == task.oracle(tokens[0].tolist())


@pytest.mark.parametrize("split", ["train", "evaluation"])
@pytest.mark.parametrize("name", ["sequences(2)", "sequences(3, balanced)", "latching(4)", "fflm(0.8)"])
def test_long_sequences_too(name, split):
    task = make_task(name)
    tokens, targets = (each.numpy() for each in task.sample(split, seed=1, rows=3, length=5000))
    answers = Machine.from_task(task).run(tokens)
    assert (numpy.where(answers == task.vocabulary, IGNORE, answers) == targets).all()


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("latching(4)", 6),
        ("latching(4, all)", 6),
        ("sequences(2)", 9),
        ("parity", 2),
        ("fflm(0.8)", 9),
        ("tomita(3)", 5),
    ],
)
def test_a_machine_is_no_larger_than_it_must_be(name, states):
    machine = Machine.from_task(make_task(name))
    assert machine.n_states == states
    assert machine.minimise().n_states == states


@pytest.mark.parametrize(
    ("name", "word", "answers"),
    [
        ("latching(2)", [0, 5, 9, 1, 5, 0], [0, 0, 0, 10, 10, 10]),
        ("latching(2, all)", [0, 5, 9, 1, 5, 0], [0] * 6),
        ("latching(2)", [2, 0], [10, 10]),
        ("induction_heads(2)", [1, 2, 0, 1, 2, 1], [4, 4, 4, 4, 0, 4]),
        ("induction_heads(2)", [2, 2, 1, 2], [4, 4, 4, 4]),
        ("fflm(0.5)", [2, 0, 3, 0, 3, 1, 2, 1, 3], [5, 5, 0, 5, 0, 5, 5, 5, 5]),
        ("fflm(0.5)", [3, 0, 3], [5, 5, 5]),
        ("modular_arithmetic", [3, 5, 4, 4, 4], [3, 8, 2, 8, 8]),
    ],
)
def test_after_a_token_that_may_not_come_no_answer_is_asked_for(name, word, answers):
    assert slow_run(Machine.from_task(make_task(name)), word) == answers


def test_an_automaton_of_ones_own_is_a_machine_too():
    splits = {"train": Split(sequences=6, shortest=3, longest=20)}
    task = Automaton([[0, 1, -1], [0, 1, 2], [0, 1, 2]], [3, IGNORE, 1], start=1, splits=splits)
    machine = Machine.from_task(task)
    for word in product(range(3), repeat=4):
        expected, state = [], 1
        for token in word:
            state = -1 if state < 0 else int(task.successor[state, token])
            output = IGNORE if state < 0 else int(task.output[state])
            expected.append(task.vocabulary if output == IGNORE else output)
        assert slow_run(machine, word) == expected


def test_a_task_that_is_no_machine_is_named():
    class Other(Task):
        def blocks(self, split, lengths, random):
            return iter(())

        def oracle(self, tokens):
            return []

    with pytest.raises(ValueError, match="the task Other says no machine"):
        Machine.from_task(Other())
