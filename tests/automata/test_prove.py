import json
from dataclasses import replace

import numpy
import pytest
import torch

from latchwork.automata import Machine
from latchwork.automata.certify import Counterexample, Proof, Unknown, certify
from latchwork.automata.compile import compile
from latchwork.automata.learn import learn
from latchwork.automata.sampler import Sampler
from latchwork.machines.words import even_moves
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import IGNORE, make_task
from latchwork.training import ProofProtocol, train_until_proved
from latchwork.training.plans.until_proved import UntilProved

TINY = MinMaxRNCLMConfig.small(d_model=16, d_state=8, n_layers=1, levels=3, output_gate=False, ffn_dropout=0.0)


def test_a_group_is_learnt_by_units_that_select_and_proved():
    shape = {"n_layers": 1, "d_model": 24, "d_state": 24, "degree": 3, "reset_form": "selection", "ffn_dropout": 0.0}
    config = MinMaxRNCLMConfig.small(**shape, conv_type="gated", conv_init_val=-6.0, output_gate=False)
    protocol = ProofProtocol(rounds=8, steps=400, tokens=1024, length=32, learning_rate=0.01, later_rate=0.005)
    assert isinstance(train_until_proved(make_task("word_problem(S3)"), config, protocol=protocol).result, Proof)


def test_what_is_not_reached_is_reported_with_its_words():
    attempt = train_until_proved(make_task("sequences(2)"), TINY, protocol=ProofProtocol(steps=3, rounds=2))
    assert [each["result"] for each in attempt.rounds] == ["Counterexample"] * 2
    assert all(each["word"] for each in attempt.rounds)


@pytest.mark.parametrize("name", ["latching(3)", "induction_heads(3)", "sequences(2)", "fflm(0.8)"])
def test_drawn_words_are_those_of_the_task_with_its_answers(name):
    task = make_task(name)
    machine = Machine.from_task(task)
    word = task.sample("train", 0, 1, 12).tokens[0].tolist()
    tokens, targets = Sampler(machine, task.vocabulary).batch(numpy.random.default_rng(0), 64, 30, [word[:5]], [word])
    assert tokens[0, :5].tolist() == word[:5]
    expected = torch.from_numpy(machine.run(tokens.numpy()))
    asked = targets != IGNORE
    assert asked.any()
    assert (targets == expected)[asked].all()
    assert any(row[: len(word)] == word for row in tokens[1:].tolist())
    assert any(row[: len(word)] != word and row[:3] == word[:3] for row in tokens[1:].tolist())


def test_learning_finds_the_machine_of_a_compiled_network_and_calls_it_a_hypothesis():
    machine = Machine.from_regex("a(b|c)*", "abc")
    hypothesis = learn(compile(machine, "one_hot"), symbols=3, words=100)
    assert hypothesis.machine.equivalent(machine) is None
    assert hypothesis.tried == 100
    assert hypothesis.queries > 0


def test_learning_takes_a_network_with_a_learnt_start():
    config = MinMaxRNCLMConfig.small(d_model=8, d_state=2, n_layers=2, levels=3, train_init=True)
    model = MinMaxRNC_LM(2, config).eval()
    hypothesis = learn(model, words=50, length=10)
    words = numpy.random.default_rng(0).integers(2, size=(20, 8))
    with torch.no_grad():
        assert (hypothesis.machine.run(words) == model(torch.from_numpy(words))[0].argmax(-1).numpy()).all()


@pytest.mark.parametrize("found", [Counterexample((1, 0), 0, 1, 7, 0.5), Unknown("too large", 7, 0.5, (1,), "prune")])
def test_what_was_found_is_saved_as_json_and_comes_back_with_the_names_of_the_machine(found):
    plan, other = (UntilProved(make_task("parity"), ProofProtocol()) for _ in range(2))
    plan.result = replace(found, machine=plan.machine)
    other.restore(json.loads(json.dumps(plan.state(), allow_nan=True)))
    assert other.result == plan.result
    assert str(other.result) == str(plan.result)


def test_words_may_be_drawn_evenly_among_the_states_that_follow():
    task = make_task("sequences(3)")
    machine = Machine.from_task(task)
    share = {}
    for even in ("symbols", "states"):
        tokens, targets = Sampler(machine, task.vocabulary, even).batch(numpy.random.default_rng(0), 400, 12)
        assert (numpy.array(machine.run(tokens.numpy())) == targets.numpy()).all()
        share[even] = float((targets != task.answers).float().mean())
    assert share["states"] > 2 * share["symbols"]


def test_an_even_draw_of_states_gives_each_state_that_follows_its_share():
    machine = Machine(numpy.array([[1, 0, 0, 0], [1, 1, 1, 1]]), numpy.zeros((2, 4), int))
    weights = even_moves(machine, numpy.ones((2, 4), bool))
    assert weights[0] == pytest.approx([3 / 8, 5 / 24, 5 / 24, 5 / 24])
    assert weights[1] == pytest.approx([1 / 4] * 4)


def test_what_is_proved_may_be_the_network_without_idle_units(tmp_path):
    task, protocol = make_task("fflm(0.8)"), ProofProtocol(steps=400, rounds=6, prune=2000)
    attempt = train_until_proved(task, TINY, protocol=protocol, folder=tmp_path)
    assert isinstance(attempt.result, Proof)
    assert attempt.model.config.backbone.d_state == attempt.rounds[-1]["d_state"] < TINY.backbone.d_state
    assert isinstance(certify(attempt.model, Machine.from_task(task), no_answer=task.vocabulary), Proof)
    again = train_until_proved(task, TINY, protocol=protocol, folder=tmp_path)  # from the folder of the finished run
    for name, tensor in attempt.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)
