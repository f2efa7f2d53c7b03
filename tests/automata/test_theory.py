"""The theorems of "MinMax Recurrent Neural Cascades" (arXiv 2605.06384), in order, each as a check that runs.

A number such as [882] is the line of the paper's LaTeX source at which the statement stands. Where the paper's text
has a slip, the check is of what is right, and says so. Some stand elsewhere: the monoid of steps, [6297] and [6508], in
tests/ops/test_algebra.py; gradients against differences, [1153] first claim, in tests/ops/test_gradient.py; cascades of
identity-reset semiautomata, [4058], in test_blocks.py; work, bounds and gradients in test_theory_of_time.py.
"""

import numpy
import pytest
import torch
from group_cases import symmetric
from hypothesis import example, given
from hypothesis import strategies as st
from network_cases import all_words, answers, prove
from theory_cases import SEEDS, steps

from latchwork.automata import (
    Component,
    Machine,
    cascade,
    compile,
    degree,
    general_unit,
    identity_reset_unit,
    is_group_free,
    permutation_unit,
)
from latchwork.automata.extract import extract
from latchwork.models import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.ops import minmax_scan, minmax_step
from machine_cases import machines, random_machine

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
PARITY = Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]])


def random_network(seed, *, degree=1, n_layers=2, levels=2, symbols=2):
    """A small network with states on a grid, and weights large enough that it does something."""
    torch.manual_seed(seed)
    config = MinMaxRNCConfig(
        d_model=6, n_layers=n_layers, d_state=2 * degree, degree=degree, levels=levels, output_gate=False
    )
    model = MinMaxRNC_LM(symbols, MinMaxRNCLMConfig(backbone=config, tie_weights=False)).eval()
    with torch.no_grad():
        for layer in model.backbone.layers:
            layer.neuron.projection.weight.normal_(std=1.0)
            layer.neuron.projection.bias.normal_(std=0.5)
            layer.neuron.x0.normal_()
    return model


# The model, and its two examples.


def test_example_1_a_neuron_stores_and_keeps():
    """[720] R(a, b) = a and s(a, b) = b from 0, on (0, 2), (7, 0), (5, 0), (0, 1): the states are 2, 2, 2, 1."""
    r, s = torch.tensor([[[0.0], [7.0], [5.0], [0.0]]]), torch.tensor([[[2.0], [0.0], [0.0], [1.0]]])
    assert minmax_scan(r, s, torch.zeros(1)).flatten().tolist() == [2, 2, 2, 1]


def test_example_2_a_neuron_swaps():
    """[764] R(u) = ((1-u, u), (u, 1-u)), s = 0, from (1, 0) on 1, 0, 1. (R(0) is the identity, R(1) the swap: the
    paper prints the two matrices exchanged; its states are right.)
    """
    u = torch.tensor([1.0, 0.0, 1.0])
    r = torch.stack([torch.stack([1 - u, u], -1), torch.stack([u, 1 - u], -1)], -2)
    states = minmax_scan(r[None, :, None], torch.zeros(1, 3, 1, 2), torch.tensor([[1.0, 0.0]]))
    assert states[0, :, 0].tolist() == [[0, 1], [0, 1], [1, 0]]


# Expressivity: the constructions.


def is_realised(unit, epsilon):
    """On all words, exactly; and with r, s and x0 off by at most epsilon, in another way at each step."""
    words = torch.from_numpy(all_words(unit.s.shape[0], 5))
    expected = torch.from_numpy(unit.machine().run(words.numpy()))
    assert torch.equal(unit.run(words), unit.codes[expected])
    r, s, x0 = unit.r[words], unit.s[words], unit.codes[0].expand(len(words), -1)
    r, s, x0 = (each + epsilon * (2 * torch.rand_like(each) - 1) for each in (r, s, x0))
    x = minmax_scan(r.unsqueeze(2), s.unsqueeze(2), x0.unsqueeze(1)).squeeze(2)
    assert ((x - unit.codes[expected]).abs() <= 1.001 * epsilon).all()
    assert torch.equal(unit.decode(x), expected)


@given(st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=4), SEEDS)
def test_an_identity_reset_semiautomaton_is_a_unit_of_dimension_one(targets, seed):
    """[882], in full [3677], for any levels more than two epsilon apart. ([3714] prints the values of R swapped.)"""
    levels = numpy.random.default_rng(seed).permutation(numpy.arange(-8.0, 8.0))[:4].tolist()
    unit = identity_reset_unit(targets, levels)
    assert unit.degree == 1
    is_realised(unit, epsilon=0.49)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=1, max_size=3)))
def test_a_permutation_semiautomaton_is_a_unit_of_its_degree(actions):
    """[961], in full [3853]. The matrices are in push form."""
    unit = permutation_unit(actions)
    assert unit.degree == len(actions[0])
    is_realised(unit, epsilon=0.49)


def test_the_pull_form_that_is_printed_is_wrong_for_s3():
    """[983] prints R[l, p(l)], which moves by the inverse of p."""
    push = permutation_unit(symmetric(3))
    words = torch.from_numpy(all_words(2, 4))
    pull = type(push)(push.transitions, push.codes, push.r.mT, push.s)
    expected = torch.from_numpy(push.machine().run(words.numpy()))
    assert torch.equal(push.decode(push.run(words)), expected)
    assert not torch.equal(pull.decode(pull.run(words)), expected)


@given(machines(states=4, symbols=3))
def test_any_semiautomaton_is_a_unit_of_as_many_dimensions_as_states(machine):
    """[3404]"""
    unit = general_unit(machine.transitions)
    assert unit.degree == machine.n_states
    is_realised(unit, epsilon=0.49)


LATCH = Component([[0, 0, 1], [1, 0, 1]], lambda symbol, before: symbol)  # hold, off, on
THREE = Component([[0, 1], [1, 2], [2, 0]], lambda symbol, before: before[0])  # counts the steps that found it on
LAST = Component([[0, 1], [0, 1]], lambda symbol, before: int(before[1] == 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cascade_of_semiautomata_is_a_cascade_of_units_in_floating_point_too(dtype):
    """[4058], [4148], [4246]: dimension one for identity-reset, else at most the number of states."""
    model = cascade(3, [LATCH, THREE, LAST], lambda states: 6 * states[0] + 2 * states[1] + states[2]).to(dtype)
    assert model.config.backbone.degree == 3
    states, table = [(0, 0, 0)], []
    for on, count, _ in states:
        row = [([on, 0, 1][symbol], (count + on) % 3, int(count == 2)) for symbol in range(3)]
        states += [each for each in dict.fromkeys(row) if each not in states]
        table.append([states.index(each) for each in row])
    outputs = [[6 * a + 2 * b + c for a, b, c in (states[to] for to in row)] for row in table]
    assert prove(model, Machine.from_table(table, outputs)) >= len(states)


# Expressivity: the theorem and its three claims.


@example(random_machine(0, 5, outputs=3), torch.bfloat16)
@given(machines(states=4, symbols=2), st.sampled_from(DTYPES))
def test_every_regular_function_has_a_network_of_its_degree_in_floating_point_too(machine, dtype):
    """[830], [4669], first claims [4289]; the degree is that of [819]."""
    smallest = machine.minimise()
    model = compile(smallest, "cascade", groups="series").to(dtype)
    assert model.config.backbone.degree == degree(smallest)
    assert prove(model, machine) >= smallest.n_states


@given(SEEDS, st.sampled_from([1, 3]))
def test_states_are_among_the_finitely_many_numbers_that_the_inputs_give(seed, n):
    """[4354], over a finite alphabet, for one unit: each state scalar is one of those in R(u), s(u) and x0."""
    r, s, x0 = steps(seed, 4, n, ties=False)  # of the four letters
    word = torch.randint(4, (300,), generator=torch.Generator().manual_seed(seed))
    x = minmax_scan(r[:, word], s[:, word], x0)
    numbers = {*r.flatten().tolist(), *s.flatten().tolist(), *x0.flatten().tolist()}
    assert {*x.flatten().tolist()} <= numbers


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_a_cascade_over_a_finite_alphabet_reaches_finitely_many_states(n_layers, degree):
    """[4354]: the walk through all words comes to an end, and the machine that it finds does what the network does."""
    sizes = set()
    for seed in range(8):
        model = random_network(seed, degree=degree, n_layers=n_layers)
        machine = extract(model, max_states=20_000)
        words = all_words(2, 10)
        assert (answers(model, words) == machine.run(words)).all()
        sizes.add(machine.n_states)
    assert max(sizes) > 4  # more than the last two symbols


def test_so_no_cascade_tells_all_numbers_of_letters_apart():
    """[4490], for a^n b^n, by the pigeonhole: two numbers of letters lead to one state, and are answered alike."""
    for seed in range(8):
        machine = extract(random_network(seed), max_states=20_000)
        state, met = machine.start, {}
        for count in range(machine.n_states + 1):
            if state in met:
                break
            met[state] = count
            state = int(machine.transitions[state, 0])
        first = met[state]
        assert first < count <= machine.n_states
        ends = [machine.run(numpy.array([[0] * many + [1] * count]))[0, -1] for many in (first, count)]
        assert ends[0] == ends[1]


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_a_unit_of_dimension_one_is_constant_after_two_equal_steps(r, s, x):
    """[4589]"""
    r, s, x = (torch.tensor([[each]]) for each in (r, s, x))
    twice = minmax_step(r, s, minmax_step(r, s, x))
    assert torch.equal(minmax_step(r, s, twice), twice)


def test_a_unit_of_dimension_two_need_not_be():
    swap = torch.tensor([[[[0.0, 1.0], [1.0, 0.0]]]])
    x = torch.tensor([[[1.0, 0.0]]])
    for _ in range(5):
        before, x = x, minmax_step(swap, torch.zeros(1, 1, 2), x)
        assert not torch.equal(before, x)


def test_networks_of_degree_one_are_group_free():
    """[4639], by way of [4508] and [4541]: no word permutes states of a network of degree one, and none is parity."""
    sizes = []
    for seed in range(40):
        machine = extract(random_network(seed, n_layers=1 + seed % 3), max_states=20_000)
        sizes.append(machine.n_states)
        assert is_group_free(machine)
        assert machine.equivalent(PARITY) is not None
    assert max(sizes) >= 10


@given(machines(states=4, symbols=2))
def test_and_compiled_networks_are_group_free_exactly_when_of_degree_one(machine):
    """[862]"""
    model = compile(machine, "cascade")
    found = extract(model, symbols=machine.n_symbols)
    assert is_group_free(found.minimise()) == is_group_free(machine.minimise())
    if model.config.backbone.degree == 1:
        assert is_group_free(found)


def test_networks_of_degree_two_need_not_be_group_free():
    assert not is_group_free(extract(compile(PARITY, "cascade")))
    assert not all(is_group_free(extract(random_network(seed, degree=2), max_states=20_000)) for seed in range(20))
