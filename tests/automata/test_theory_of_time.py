"""The theorems of the paper about time: work and depth, bounded states, gradients that do not vanish.

The others are in test_theory.py. A number such as [1048] is the line of the LaTeX source at which the statement stands.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory_cases import SEEDS, steps
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from latchwork.automata import permutation_unit
from latchwork.models import MinMaxRNC, MinMaxRNCConfig
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.ops import algebra, minmax_scan
from latchwork.ops.reference import reference_scan
from latchwork.ops.torch import scan as parallel

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
