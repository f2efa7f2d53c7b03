"""Networks that are trained to be machines: their start, their words, and a proof."""

import numpy
import pytest
import torch

from latchwork.automata import Machine, Proof
from latchwork.learning.networks import ChosenWords, NetworkPlan, make_network, train_and_prove
from latchwork.tasks import make_task


def test_a_unit_that_starts_with_one_level_is_always_one_hot():
    torch.manual_seed(0)
    model = make_network(4, NetworkPlan(degree=5, units=6)).eval()
    model.backbone.layers[0].neuron.projection.weight.data *= 50  # so that letters move levels differently
    _, state = model(torch.randint(0, 4, (64, 9)))
    units = state.x[0].view(64, 6, 5)
    assert torch.equal(units.sum(-1), torch.ones(64, 6))
    assert set(units.unique().tolist()) == {0.0, 1.0}


def test_chosen_words_have_the_tasks_answers_and_begin_with_the_counterexamples():
    task = make_task("tomita(3)")
    words = ChosenWords(task, Machine.from_task(task))
    words.add((1, 0, 1, 1, 0, 1, 0))
    tokens, targets = words.sample("train", 3, 60, 12)
    for word, answers in zip(tokens.tolist(), targets.tolist(), strict=True):
        assert task.oracle(word) == answers
    near = (tokens[:30, :7] != torch.tensor(words.words[0])).sum(1)
    assert int((near <= 2).sum()) >= 15
    assert tokens.shape == (60, 12)


def test_chosen_words_come_to_every_state():
    task = make_task("tomita(7)")
    machine = Machine.from_task(task)
    tokens, _ = ChosenWords(task, machine).sample("train", 0, 40, 8)
    state, seen = numpy.full(40, machine.start), set()
    for letter in tokens.numpy().T:
        state = machine.transitions[state, letter]
        seen |= set(state.tolist())
    assert seen == set(range(machine.n_states))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tomita(3)", "tomita(4)"])
def test_a_language_that_is_no_group_is_learnt_and_proved(name):
    found = train_and_prove(make_task(name), NetworkPlan(degree=7), seconds=120)
    assert isinstance(found.result, Proof)
    assert found.learnt
    assert found.units < 32
