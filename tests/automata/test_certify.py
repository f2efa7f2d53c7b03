import re

import numpy
import pytest
import torch
from network_cases import on_grid, random_network

from latchwork.automata import Machine
from latchwork.automata.certify import Counterexample, Proof, Unknown, certify
from latchwork.automata.compile import compile
from latchwork.automata.extract import extract
from latchwork.models.int8 import quantize_int8

GROUP_FREE = ["a(b|c)*", "(ab)*", "(a|b)*abb", "a+b+", "ab|ba"]


def change_one_output(machine, state, symbol):
    outputs = machine.outputs.copy()
    outputs[state, symbol] = 1 - min(1, outputs[state, symbol])
    return Machine.from_table(machine.transitions, outputs, machine.start)


@pytest.mark.parametrize("pattern", GROUP_FREE)
def test_a_compiled_network_is_proved_right_for_all_words(pattern):
    machine = Machine.from_regex(pattern, "abc")
    proof = certify(on_grid(compile(machine, "cascade")), machine)
    assert isinstance(proof, Proof)
    assert proof.margin == 1
    assert proof.precision == "float32"
    assert 0 < proof.bound < 0.01
    assert proof.float32_seen == 0  # small integers
    assert proof.states >= machine.reachable().n_states


@pytest.mark.parametrize("pattern", GROUP_FREE)
def test_a_wrong_network_gets_the_shortest_word_on_which_it_is_wrong(pattern):
    machine = Machine.from_regex(pattern, "abc")
    model = on_grid(compile(machine, "cascade"))
    for state in range(machine.n_states):
        other = change_one_output(machine, state, 1)
        found = certify(model, other)
        assert isinstance(found, Counterexample)
        shortest = machine.equivalent(other)
        assert len(found.word) == len(shortest)
        run = numpy.array([found.word])
        assert found.said == machine.run(run)[0, -1]
        assert found.expected == other.run(run)[0, -1] != found.said


@pytest.mark.parametrize("method", ["cascade", "one_hot"])
def test_units_of_higher_degree_are_walked_through_too(method):
    for m in (2, 3, 5):
        table = [[(state + symbol) % m for symbol in range(2)] for state in range(m)]
        machine = Machine.from_table(table, table)
        assert isinstance(certify(on_grid(compile(machine, method)), machine), Proof)
        assert isinstance(certify(on_grid(compile(machine, method)), change_one_output(machine, 1, 0)), Counterexample)


def test_steps_without_an_answer_are_not_judged():
    machine = Machine.from_regex("(ab)*", "ab")
    asked = machine.outputs.copy()
    asked[:, 0] = 7
    assert isinstance(
        certify(on_grid(compile(machine, "cascade")), Machine.from_table(machine.transitions, asked), no_answer=7),
        Proof,
    )
    assert isinstance(
        certify(on_grid(compile(machine, "cascade")), Machine.from_table(machine.transitions, asked)), Unknown
    )


def brute_force(model, machine, longest):
    """The length of the shortest word on which they differ, by trying all; None if there is none so short."""
    for length in range(1, longest + 1):
        words = torch.cartesian_prod(*[torch.arange(2)] * length).view(-1, length)
        with torch.no_grad():
            said = model(words)[0].argmax(-1).numpy()
        if (said[:, -1] != machine.run(words.numpy())[:, -1]).any():
            return length
    return None


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("gate", [True, False])
def test_on_random_networks_it_agrees_with_trying_all_words(n_layers, gate):
    seen = set()
    for seed in range(6):
        model = random_network(seed, n_layers=n_layers, output_gate=gate)
        with torch.no_grad():
            constant = int(model(torch.tensor([[0]]))[0].argmax())
        machine = Machine.from_table([[0, 0]], [[constant, constant]])
        found = certify(model, machine, precision="float64", tolerance=1e-5, max_states=20_000)
        shortest = brute_force(model, machine, 7)
        seen.add(type(found))
        if isinstance(found, Counterexample):
            assert shortest == len(found.word) or (shortest is None and len(found.word) > 7)
        elif isinstance(found, Proof):
            assert shortest is None
    assert Counterexample in seen


@pytest.mark.parametrize(
    "changes",
    [
        {"degree": 3, "d_state": 6, "reset_form": "selection", "levels": None},
        {"degree": 2, "d_state": 4, "reset_form": "selection", "levels": None, "n_layers": 2},
        {"d_state": 2, "extra_units": ((1, 3), (1, 2)), "reset_form": "selection"},
        {"degree": 3, "d_state": 6, "reset_form": "transformation", "levels": None},
        {"d_state": 2, "extra_units": ((1, 2),)},
    ],
    ids=["selection", "two layers", "selection beside scalars", "transformation", "two degrees"],
)
def test_units_of_other_forms_agree_with_trying_all_words(changes):
    seen = set()
    for seed in range(6):
        model = random_network(seed, **changes)
        with torch.no_grad():
            constant = int(model(torch.tensor([[0]]))[0].argmax())
        machine = Machine.from_table([[0, 0]], [[constant, constant]])
        found = certify(model, machine, max_states=20_000)
        seen.add(type(found))
        if isinstance(found, Counterexample):
            assert len(found.word) == brute_force(model, machine, min(len(found.word), 12))
        elif isinstance(found, Proof):
            assert brute_force(model, machine, 8) is None
    assert seen & {Counterexample, Proof}


@pytest.mark.parametrize("form", ["selection", "transformation"])
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("degree", [2, 3])
def test_the_walk_through_a_network_that_moves_whole_levels_is_the_network_itself(form, degree, gate):
    """Extracted state by state, the network is a machine: certify proves that it is that one, and no other."""
    proved = 0
    for seed in range(8):
        model = random_network(seed, degree=degree, d_state=2 * degree, reset_form=form, levels=None, output_gate=gate)
        machine = extract(model, max_states=5000)
        found = certify(model, machine)
        assert not isinstance(found, Counterexample)
        proved += isinstance(found, Proof)
        assert not isinstance(certify(model, change_one_output(machine, machine.n_states - 1, 1)), Proof)
    assert proved >= 4


def test_what_cannot_be_walked_through_is_unknown_with_its_reason():
    machine = Machine.from_regex("(ab)*", "ab")
    assert "no levels" in certify(on_grid(compile(machine, "cascade"), None), machine).reason
    wide = Machine.from_table([[0, 0, 0]], [[0, 0, 0]])
    assert "3 symbols, the network 2" in certify(on_grid(compile(machine, "cascade")), wide).reason
    loud = Machine.from_table([[0, 0]], [[0, 5]])
    assert "an output 5" in certify(on_grid(compile(machine, "cascade")), loud).reason
    stopped = certify(on_grid(compile(machine, "cascade")), machine, max_states=1)
    assert isinstance(stopped, Unknown)
    assert stopped.reason == "more than 1 states"
    assert stopped.advice.startswith("allow more by max_states, or make the network smaller: take units")


def test_a_tolerance_wider_than_the_grid_is_unknown():
    machine = Machine.from_regex("(ab)*", "ab")
    found = certify(on_grid(compile(machine, "cascade")), machine, tolerance=0.6)
    assert isinstance(found, Unknown)
    assert "more than a step of the grid" in found.reason
    finer = certify(on_grid(compile(machine, "cascade"), 201), machine, tolerance=0.02)
    assert "more than a step of the grid" in finer.reason


@pytest.mark.parametrize("levels", [4, 7])
def test_on_grids_that_float32_rounds_it_agrees_with_trying_all_words(levels):
    wrong = 0
    for seed in range(4):
        model = random_network(seed, levels=levels, n_layers=2)
        with torch.no_grad():
            constant = int(model(torch.tensor([[0]]))[0].argmax())
        machine = Machine.from_table([[0, 0]], [[constant, constant]])
        found = certify(model, machine, precision="float64", tolerance=1e-5, max_states=20_000)
        if isinstance(found, Counterexample):
            wrong += 1
            assert len(found.word) == brute_force(model, machine, len(found.word))
    assert wrong


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"levels": 301}, "301 levels: there may be at most 256"),
        ({"levels": None}, "no levels"),
        ({"ffn_act_fn": "relu^2"}, "activation is relu^2: there are bounds for relu alone"),
    ],
)
def test_parts_without_bounds_are_unknown(changes, reason):
    machine = Machine.from_regex("(ab)*", "ab")
    found = certify(on_grid(compile(machine, "cascade"), **changes), machine)
    assert reason in found.reason
    assert "levels=3" in found.advice
    assert isinstance(
        certify(on_grid(compile(machine, "cascade"), **changes), change_one_output(machine, 0, 0)), Counterexample
    )


def test_weights_other_than_float32_are_unknown():
    machine = Machine.from_table([[0, 0]], [[0, 0]])
    found = certify(quantize_int8(random_network(0)), machine)
    assert found.reason == "model.embedding is of type Int8Embedding; as made it is of type Embedding"
    found = certify(random_network(0).double(), machine)
    assert found.reason == "the network's weights must be float32: model.embedding.weight is torch.float64"
    assert found.advice == "certify model.float()"


def test_a_start_that_float32_rounds_to_another_level_is_unknown():
    machine = Machine.from_table([[0, 0]], [[0, 0]])
    model = random_network(0, levels=2)
    model.backbone.layers[0].neuron.x0.fill_(1e-9)  # 1 + 1e-9 is 1 in float32, which is half way
    model.head.weight = model.embedding.weight = torch.nn.Parameter(torch.ones(2, 8))  # equal logits: the answer is 0
    assert "x0 is so near to a boundary" in certify(model, machine).reason


def test_tables_larger_than_allowed_stop_it_and_say_how_large_they_are():
    model = random_network(0, n_layers=2)
    model.head.weight = model.embedding.weight = torch.nn.Parameter(torch.ones(2, 8))  # equal logits: the answer is 0
    machine = Machine.from_table([[0, 0]], [[0, 0]])
    found = certify(model, machine, precision="float64", tolerance=1e-5, max_bytes=1_000)
    assert isinstance(found, Unknown)
    assert re.fullmatch(
        r"a layer's tables, of \d+ inputs and \d+ pairs of them so far, take [\d,]+ bytes, "
        r"more than max_bytes, which is 1,000",
        found.reason,
    )
    assert found.advice.startswith("allow more by max_bytes, or make the network smaller: ")


@pytest.mark.parametrize("argument", ["max_states", "max_bytes"])
def test_bounds_must_be_positive(argument):
    machine = Machine.from_table([[0, 0]], [[0, 0]])
    with pytest.raises(ValueError, match=f"{argument} must be at least 1; got 0"):
        certify(random_network(0), machine, **{argument: 0})


def test_what_to_do_depends_on_the_network():
    machine = Machine.from_table([[0, 0]], [[0, 0]])
    model = random_network(0, n_layers=2, levels=5)
    model.head.weight = model.embedding.weight = torch.nn.Parameter(torch.ones(2, 8))  # equal logits
    rounded = certify(model, machine)
    assert "precision='float64'" in rounded.advice
    assert "output_gate=False, or train with fewer layers than 2, or train with fewer levels than 5" in rounded.advice
    coarse = random_network(0, levels=3, output_gate=False)
    coarse.head.weight = coarse.embedding.weight = torch.nn.Parameter(torch.ones(2, 8))
    wide = certify(coarse, machine, precision="float64", tolerance=0.4)
    assert wide.advice.startswith("take a tolerance of less than 0.4; or make the network smaller: ")
    assert not any(each in wide.advice for each in ("gate", "layers", "levels"))


def test_a_network_that_is_wrong_on_some_steps_is_not_unknown():
    """Two layers, a gate and more states than allowed: the walk alone ends before it comes to a wrong answer."""
    machine = Machine.from_table([[1, 0], [1, 2], [1, 0]], [[0, 0], [0, 0], [0, 1]])
    for seed in range(4):
        found = certify(random_network(seed, n_layers=3, d_state=8, levels=9), machine, max_states=1)
        assert isinstance(found, Counterexample)


def test_a_mistake_after_many_steps_is_found_by_random_words_and_then_made_the_shortest():
    """Symbol 1 counts, and the answer changes at 18: all words that short are too many to try."""
    table = [[k, min(k + 1, 18)] for k in range(19)]
    machine = Machine.from_table(table, [[0, 0]] * 19)
    model = on_grid(compile(Machine.from_table(table, [[int(k == 18) for k in row] for row in table]), "one_hot"))
    assert certify(model, machine).word == (1,) * 18
    stopped = certify(model, machine, max_states=2)
    assert isinstance(stopped, Counterexample)
    assert sum(stopped.word) == 18 < len(stopped.word)


def test_a_mistake_that_is_none_when_the_word_is_run_alone_is_no_counterexample(monkeypatch):
    """Of two logits that are nearly equal the larger depends on the batch."""
    machine = Machine.from_regex("(ab)*", "ab")
    model = on_grid(compile(machine, "cascade"))

    def once(network, machine, asked, words):
        return ((0,), 0, 1) if len(words) > 1 else None

    monkeypatch.setitem(certify.__globals__, "first_mistake", once)
    found = certify(model, machine)
    assert isinstance(found, Unknown)
    assert found.reason == "an answer depends on the batch it is in"
    assert found.word == (0,)
