"""The theorems of "MinMax Recurrent Neural Cascades" (arXiv 2605.06384), in order, each as a check that runs.

A number such as [882] is the line of the paper's LaTeX source at which the statement stands. Where the paper's text
has a slip, the check is of what is right, and says so. Some stand elsewhere: the monoid of steps, [6297] and [6508], in
tests/ops/test_algebra.py; gradients against differences, [1153] first claim, in tests/ops/test_gradient.py; cascades of
identity-reset semiautomata, [4058], in test_blocks.py.
"""

import math

import numpy
import pytest
import torch
from group_cases import symmetric
from hypothesis import example, given
from hypothesis import strategies as st
from network_cases import all_words, answers, prove
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

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
from latchwork.models import MinMaxRNC, MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.ops import algebra, minmax_scan, minmax_step
from latchwork.ops.reference import reference_scan
from latchwork.ops.torch import scan as parallel
from machine_cases import machines, random_machine

SEEDS = st.integers(0, 10**6)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
PARITY = Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]])


def steps(seed, T, n, *, ties=True, dtype=torch.float64):
    """r, s and x0 of T steps of one unit of degree n, as minmax_scan takes them: small integers, or continuous."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(1, T, 1), (1, T, 1), (1, 1)] if n == 1 else [(1, T, 1, n, n), (1, T, 1, n), (1, 1, n)]
    if ties:
        return [torch.randint(-3, 4, shape, generator=generator).to(dtype) for shape in shapes]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


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


# Complexity, counted and not timed.


class Work(TorchDispatchMode):
    """Counts the minima and maxima of two numbers that are taken."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.minimum.default, torch.ops.aten.maximum.default):
            self.count += out.numel()
        elif func is torch.ops.aten.amax.default:
            self.count += args[0].numel() - out.numel()
        elif "max" in func.name() or "min" in func.name():
            raise AssertionError(f"{func.name()} is not counted")
        return out


def work(run, *args):
    with Work() as counted:
        run(*args)
    return counted.count


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_step_takes_work_of_the_square_of_the_dimension_and_a_composition_of_its_cube(n):
    """[1048], [5513]: O(T N^2), one minimum and one maximum for each entry of R. [6188]: O(n^3)."""
    for T in (1, 7, 64):
        assert work(reference_scan, *steps(0, T, n)) == 2 * T * n**2
    r, s, _ = steps(0, 2, n)
    count = work(algebra.compose, (r[:, 0], s[:, 0]), (r[:, 1], s[:, 1]))
    assert count == (3 if n == 1 else n**2 * (2 * n - 1) + 2 * n**2)


def counted_composition(monkeypatch):
    """Replace `algebra.compose` by one that notes how many compositions were taken side by side, at each call."""
    calls, compose = [], algebra.compose

    def counting(first, then):
        calls.append(math.prod(first[1].shape[:-1] if first[0].dim() == first[1].dim() else first[1].shape[:-2]))
        return compose(first, then)

    monkeypatch.setattr(algebra, "compose", counting)
    return calls


@pytest.mark.parametrize("T", [1, 2, 3, 64, 100, 1000])
@pytest.mark.parametrize("n", [1, 3])
def test_all_steps_become_one_in_logarithmic_depth_and_linear_work(T, n, monkeypatch):
    """[1048]: T - 1 compositions in log2 T rounds, of which each is O(log n) deep and takes O(n^3)."""
    calls = counted_composition(monkeypatch)
    r, s, x0 = steps(0, T, n)
    whole = parallel.compose(r, s, None, None)
    assert torch.equal(algebra.apply(*whole, x0), reference_scan(r, s, x0)[:, -1])
    assert len(calls) == math.ceil(math.log2(T))
    assert sum(calls) == T - 1


def prefixes(steps):
    """[6671], the parallel scan: every step composed with all before it; each level of the recursion is two rounds."""
    r, s = steps
    T = r.shape[1]
    if T == 1:
        return r, s
    even = T // 2 * 2
    pairs = algebra.compose((r[:, 0:even:2], s[:, 0:even:2]), (r[:, 1:even:2], s[:, 1:even:2]))
    odd_r, odd_s = prefixes(pairs)  # those that end at steps 1, 3, 5, ...
    whole_r, whole_s = r.clone(), s.clone()
    whole_r[:, 1:even:2], whole_s[:, 1:even:2] = odd_r, odd_s
    if T > 2:
        last = (T - 1) // 2
        before = odd_r[:, :last], odd_s[:, :last]
        whole_r[:, 2::2], whole_s[:, 2::2] = algebra.compose(before, (r[:, 2::2], s[:, 2::2]))
    return whole_r, whole_s


@pytest.mark.parametrize("T", [1, 2, 3, 10, 64, 1000])
@pytest.mark.parametrize("n", [1, 3])
def test_every_state_is_found_in_logarithmic_depth_and_linear_work(T, n, monkeypatch):
    """[1048], [6671], [7338]: depth O(log T log N), work O(T N^3), with the library's composition."""
    calls = counted_composition(monkeypatch)
    r, s, x0 = steps(0, T, n)
    states = algebra.apply(*prefixes((r, s)), x0.unsqueeze(1).expand_as(s))
    assert torch.equal(states, reference_scan(r, s, x0))
    assert len(calls) <= max(0, 2 * math.ceil(math.log2(T)) - 1)
    assert sum(calls) < 2 * T


@pytest.mark.parametrize("T", [1024, 4096, 5000])
def test_in_plain_torch_it_is_by_chunks_and_the_depth_is_the_root_of_the_length(T, monkeypatch):
    """Not the paper's scan: `ops.parallel` takes some 3 sqrt T rounds, and at most three times the sequential work."""
    calls, advances = counted_composition(monkeypatch), []
    advance = parallel._advance
    monkeypatch.setattr(parallel, "_advance", lambda *args: advances.append(1) or advance(*args))
    r, s, x0 = steps(0, T, 1)
    count = work(parallel.forward, r, s, x0, None, None)
    root = math.isqrt(T)
    assert root <= len(calls) + len(advances) <= 4 * root + 3
    assert count <= 3 * 2 * T
    assert torch.equal(parallel.forward(r, s, x0, None, None), reference_scan(r, s, x0))


def test_a_cascade_takes_work_linear_in_time_and_layers():
    """[1094], and the work of [1100], for state degree one: O(T n_layers d^2), the products counted as it runs."""

    def count(T, n_layers, width):
        config = MinMaxRNCConfig(d_model=width, n_layers=n_layers, d_state=width, norm="none", postlayers_norm="none")
        u = torch.randn(1, T, width, requires_grad=True)  # with a gradient every product is one of torch's
        with FlopCounterMode(display=False) as flops:
            MinMaxRNC(config)(u)
        return flops.get_total_flops()

    once = count(16, 1, 20)
    assert 0 < once <= 2 * 16 * 20 * (12 * 20)
    assert count(64, 1, 20) == 4 * once
    assert count(16, 3, 20) == 3 * once
    assert count(16, 1, 40) == 4 * once


# Stability.


@given(SEEDS, st.integers(1, 60), st.sampled_from([1, 3]), st.booleans())
def test_states_are_bounded_by_what_drives_them(seed, T, n, ties):
    """[1129], for a unit [8133]: by the largest of |R|, |s| and |x0|, however long the input."""
    r, s, x0 = steps(seed, T, n, ties=ties)
    bound = max(each.abs().max() for each in (r, s, x0))
    assert minmax_scan(r, s, x0).abs().max() <= bound


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_states_and_outputs_of_a_cascade_are_bounded_however_long_the_input(scale):
    """[1129], [8194]: with norms by a number that the weights alone give, here over 20,000 steps of inputs to 1e6."""
    torch.manual_seed(0)
    d, config = 12, MinMaxRNCConfig(d_model=12, n_layers=3, d_state=8)
    model = MinMaxRNC(config).eval()
    u = scale * torch.randn(1, 20_000, d)
    with torch.no_grad():
        y, _ = model(u)
        assert y.abs().max() <= 1.0001 * math.sqrt(d - 1)  # what a norm can give
        for layer in model.layers:
            (cell,) = layer.neuron.cells
            x = cell(layer.drive(u)[..., : cell.width], layer.neuron.start())
            weight, bias = layer.neuron.projection.weight[:16], layer.neuron.projection.bias[:16]
            largest = (weight.abs().sum(1) * math.sqrt(d - 1) + bias.abs()).max()
            assert x.abs().max() <= 1.0001 * max(largest, layer.neuron.x0.abs().max())
            u, _ = layer(u)


# Gradients.


def gradients(r, s, x0):
    """Of the last state's first scalar by r, s and x0."""
    given = [each.clone().requires_grad_() for each in (r, s, x0)]
    minmax_scan(*given)[:, -1].flatten()[0].backward()
    return [each.grad for each in given]


@given(SEEDS, st.integers(1, 20), st.sampled_from([1, 2, 3]), st.booleans())
def test_the_gradient_of_a_state_is_a_weighted_mean_of_what_drives_it(seed, T, n, ties):
    """[1153], [10079]: entries at least 0 that sum to one, at ties too; so no length of input makes it grow."""
    found = gradients(*steps(seed, T, n, ties=ties))
    assert all((each >= 0).all() for each in found)
    assert abs(sum(each.sum().item() for each in found) - 1) < 1e-12


@pytest.mark.parametrize("T", [10, 1000, 30_000])
def test_the_gradient_of_a_neuron_by_its_weights_is_bounded_however_long_the_input(T):
    """[1153], second claim, with the number: by the row of W_r and of W_s together, at most the longest input."""
    torch.manual_seed(T)
    neuron = MinMaxNeuron(5, 4, output_gate=False, s_r_init="kaiming")
    u = 2 * torch.rand(1, T, 5) - 1
    x = neuron.cells[0](neuron.project(u), neuron.start())[0, -1]
    for number in range(4):
        neuron.zero_grad()
        x[number].backward(retain_graph=True)
        assert neuron.projection.weight.grad.norm(dim=1).sum() <= 1.0001 * u.norm(dim=-1).max()
        assert neuron.projection.bias.grad.abs().sum() <= 1.0001


@given(SEEDS, st.integers(1, 100))
def test_a_state_between_all_s_and_all_r_has_gradient_one(seed, T):
    """[1222], [11485], [11574]: exactly one by x0, and nothing by anything else; outside of the interval, zero."""
    r, s, _ = steps(seed, T, 1, ties=False)
    r, s = r + 5, s - 5
    a, b = s.max(), r.min()
    for x0, expected in (((a + b) / 2, 1), (a - 1, 0), (b + 1, 0)):
        grad_r, grad_s, grad_x0 = gradients(r, s, x0.view(1, 1))
        assert grad_x0.item() == expected
        assert grad_r.abs().sum() + grad_s.abs().sum() == 1 - expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("a", [0.5, 3.0])
def test_a_held_state_has_gradient_one_after_a_hundred_thousand_steps(a, dtype):
    """[1252]: R(u) = u and s(u) = -u on a constant input a, from any state in (-a, a)."""
    u = torch.full((1, 100_000, 3), a, dtype=dtype)
    x0 = torch.tensor([[-0.9 * a, 0.0, 0.9 * a]], dtype=dtype, requires_grad=True)
    x = minmax_scan(u, -u, x0)
    assert torch.equal(x[:, -1], x0)
    assert torch.autograd.grad(x[:, -1].sum(), x0)[0].tolist() == [[1, 1, 1]]


def test_a_permuted_state_has_gradient_one_too():
    """What is moved is held elsewhere: the same for degree n, along the way of each place."""
    turn = permutation_unit([(1, 2, 0)])
    x0 = torch.tensor([[0.5, 1.0, 1.5]], requires_grad=True)
    word = torch.zeros(1, 10_000, dtype=torch.long)
    x = minmax_scan(turn.r[word].unsqueeze(2), turn.s[word].unsqueeze(2), x0)
    for place in range(3):
        (grad,) = torch.autograd.grad(x[0, -1, 0, place], x0, retain_graph=True)
        assert grad.sum() == 1
        assert sorted(grad.flatten().tolist()) == [0, 0, 1]
