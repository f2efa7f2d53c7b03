"""Initial weights follow their formulas: means and deviations of large matrices, and what holds exactly."""

from itertools import permutations
from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.modules import (
    BasicConv,
    FeedForward,
    GatedFeedForward,
    MinMaxNeuron,
    small_init_init_,
    wang_init_,
)
from latchwork.modules.cells import MatrixCell, SelectionCell, make_cells

WIDTH, STATES = 300, 240  # 72,000 numbers: a deviation is known to 0.3%


def assert_normal(weight, deviation):
    assert weight.std().item() == pytest.approx(deviation, rel=0.02)
    assert abs(weight.mean().item()) < 5 * deviation / sqrt(weight.numel())
    beyond = (weight.abs() > 2 * deviation).float().mean().item()
    assert beyond == pytest.approx(0.0455, abs=0.006)  # of a normal distribution


def assert_uniform(weight, bound):
    assert bound * 0.999 < weight.abs().max().item() <= bound
    assert weight.std().item() == pytest.approx(bound / sqrt(3), rel=0.02)
    assert abs(weight.mean().item()) < 5 * bound / sqrt(weight.numel())


def parts(neuron):
    """weight and bias of r, of s, and of the gate if there is one."""
    D, n = neuron.d_state, getattr(neuron.cells[0], "degree", 1)
    rows = [D * n, D] + [D] * neuron.output_gate
    return list(zip(neuron.projection.weight.split(rows), neuron.projection.bias.split(rows), strict=True))


@pytest.mark.parametrize("dim", [1, 50, 728])
def test_small_init_is_normal_of_variance_two_fifths_over_dim(dim):
    weight = torch.empty(200, 300)
    assert small_init_init_(weight, dim) is None
    assert_normal(weight, sqrt(2 / (5 * dim)))


@pytest.mark.parametrize(("dim", "n_layers"), [(1, 1), (118, 2), (1456, 12)])
def test_wang_init_is_normal_of_deviation_two_over_layers_and_root_of_dim(dim, n_layers):
    weight = torch.empty(200, 300)
    assert wang_init_(weight, dim, n_layers) is None
    assert_normal(weight, 2 / (n_layers * sqrt(dim)))


def test_a_basic_convolution_starts_small():
    conv = BasicConv(WIDTH)
    assert_normal(conv.weight, sqrt(2 / (5 * 2 * WIDTH)))
    assert not conv.bias.any()


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_a_scaled_feed_forward_network_starts_small_and_goes_back_by_depth(kind):
    ffn = kind(WIDTH, proj_factor=2, n_layers=3)
    assert_normal(ffn.up.weight, sqrt(2 / (5 * WIDTH)))
    assert_normal(ffn.down.weight, 2 / (3 * sqrt(2 * WIDTH)))
    assert not ffn.up.bias.any()
    assert not ffn.down.bias.any()


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_a_basic_feed_forward_network_starts_as_torch_does(kind):
    ffn = kind(WIDTH, proj_factor=2, init="basic")
    assert_uniform(ffn.up.weight, 1 / sqrt(WIDTH))
    assert_uniform(ffn.down.weight, 1 / sqrt(2 * WIDTH))
    assert_uniform(torch.cat([kind(WIDTH, init="basic").up.bias for _ in range(20)]), 1 / sqrt(WIDTH))


@pytest.mark.parametrize("output_gate", [False, True])
@pytest.mark.parametrize("s_r_init", ["small_init", "kaiming", "asymmetric"])
def test_a_neuron_of_degree_one_starts_as_its_name_says(s_r_init, output_gate):
    neuron = MinMaxNeuron(WIDTH, STATES, s_r_init=s_r_init, output_gate=output_gate, n_layers=4)
    (weight_r, bias_r), (weight_s, bias_s), *gate = parts(neuron)
    if s_r_init == "kaiming":
        assert_uniform(weight_r, 1 / sqrt(WIDTH))
    else:
        assert_normal(weight_r, sqrt(2 / (5 * WIDTH)))
    if s_r_init == "small_init":
        assert_normal(weight_s, sqrt(2 / (5 * WIDTH)))
    else:
        assert_uniform(weight_s, 1 / sqrt(WIDTH))
    assert not bias_r.any()
    assert torch.equal(bias_s, torch.full_like(bias_s, 1.0 if s_r_init == "asymmetric" else 0.0))
    assert len(gate) == output_gate
    for weight, bias in gate:
        assert_normal(weight, sqrt(2 / (5 * WIDTH)))
        assert not bias.any()
    assert_normal(neuron.output.weight, 2 / (4 * sqrt(STATES)))
    assert not neuron.output.bias.any()
    assert not neuron.x0.any()


def test_the_asymmetric_start_has_no_dead_zone():
    neuron = MinMaxNeuron(WIDTH, STATES, s_r_init="asymmetric", output_gate=False)
    _, x = neuron(torch.randn(64, 1, WIDTH))
    assert (x != 0).float().mean() > 0.95  # s > 0 = x0 nearly always: the first input is written
    _, x = MinMaxNeuron(WIDTH, STATES, output_gate=False)(torch.randn(64, 1, WIDTH))
    assert (x != 0).float().mean() < 0.8


def test_the_spread_start_gives_each_latch_a_level_of_its_own():
    neuron = MinMaxNeuron(WIDTH, 4000, s_r_init="spread")
    (weight_r, bias_r), (weight_s, bias_s), (_, bias_gate) = parts(neuron)
    assert_normal(weight_r, sqrt(2 / (5 * WIDTH)))
    assert_normal(weight_s, sqrt(2 / (5 * WIDTH)))
    torch.testing.assert_close(bias_r - bias_s, torch.full_like(bias_r, 0.6))
    assert_uniform((bias_r + bias_s) / 2, 1.0)
    assert not bias_gate.any()
    beside = MinMaxNeuron(WIDTH, make_cells(40, extra_units=[(10, 3)]), s_r_init="spread")
    bias_of_group = beside.projection.bias[80:][10 * 9 :][: 10 * 3]
    assert torch.equal(bias_of_group, torch.full((30,), -1.0))  # as small_init has it


@pytest.mark.parametrize("s_r_init", ["small_init", "kaiming", "asymmetric"])
@pytest.mark.parametrize(("degree", "train_init"), [(2, True), (3, False), (5, True)])
def test_a_neuron_of_higher_degree_writes_one_lower_and_starts_at_distinct_levels(degree, train_init, s_r_init):
    neuron = MinMaxNeuron(WIDTH, [MatrixCell(degree * 80, degree)], s_r_init=s_r_init, train_init=train_init)
    _, (weight_s, bias_s), _ = parts(neuron)
    if s_r_init == "small_init":
        assert_normal(weight_s, sqrt(2 / (5 * WIDTH)))
    else:
        assert_uniform(weight_s, 1 / sqrt(WIDTH))
    assert torch.equal(bias_s, torch.full_like(bias_s, 0.0 if s_r_init == "asymmetric" else -1.0))
    units = neuron.x0.detach().view(-1, degree)
    assert torch.equal(units.sort(-1).values, torch.linspace(-1, 1, degree).expand(80, degree))
    if degree == 3:
        orders = {tuple(each) for each in units.argsort(-1).tolist()}
        assert orders == set(permutations(range(3)))


def extremes(neuron):
    """R of each unit at z = 1 and z = -1, in float64; z = <direction, u>, read off an entry in which the two differ."""
    n = neuron.cells[0].degree
    weight, bias = (each.detach().double() for each in parts(neuron)[0])
    weight, bias = weight.view(-1, n, n, neuron.d_model), bias.view(-1, n, n)
    for unit_weight, unit_bias in zip(weight, bias, strict=True):
        rows = unit_weight.flatten(0, 1)
        direction = rows[rows.square().sum(-1).argmax()]
        u = direction / direction.square().sum() if direction.any() else direction
        yield unit_bias + unit_weight @ u, unit_bias - unit_weight @ u


@given(degree=st.integers(2, 5), units=st.integers(1, 9), width=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_at_z_one_and_minus_one_the_matrix_is_a_permutation(degree, units, width, seed):
    torch.manual_seed(seed)
    for pair in extremes(MinMaxNeuron(width, [MatrixCell(units * degree, degree)])):
        for matrix in pair:
            torch.testing.assert_close(matrix.abs(), torch.ones_like(matrix), rtol=1e-5, atol=1e-5)
            ones = matrix > 0
            assert (ones.sum(0) == 1).all()
            assert (ones.sum(1) == 1).all()


@pytest.mark.parametrize("degree", [2, 3])
def test_every_permutation_is_drawn_and_entries_on_which_both_agree_are_constant(degree):
    neuron = MinMaxNeuron(8, [MatrixCell(degree * 200, degree)])
    seen = [tuple((matrix > 0).int().argmax(-1).tolist()) for pair in extremes(neuron) for matrix in pair]
    assert set(seen) == set(permutations(range(degree)))
    (weight, bias), *_ = parts(neuron)
    agree = bias != 0
    assert agree.any()
    assert not weight[agree].any()
    assert set(bias.tolist()) == {-1.0, 0.0, 1.0}


def test_the_direction_has_variance_one_for_an_input_of_variance_one():
    neuron = MinMaxNeuron(WIDTH, [MatrixCell(600, 2)], output_gate=False)
    (weight, bias), _ = parts(neuron)
    moving = (bias == 0).nonzero().squeeze(-1)[::4]  # one entry of each unit whose permutations differ
    z = torch.randn(100, WIDTH) @ weight[moving].T
    assert z.std().item() == pytest.approx(1.0, rel=0.05)


def test_choices_start_nearly_even_and_their_levels_apart():
    neuron = MinMaxNeuron(200, [SelectionCell(100, 5)], output_gate=False)
    assert neuron.project(torch.randn(50, 200)).std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.equal(neuron.x0.view(20, 5).sort(-1).values, torch.linspace(-1, 1, 5).expand(20, 5))


@pytest.mark.parametrize(("init", "deviation"), [("small_init", sqrt(2 / (5 * 90))), ("normal", 1.0)])
def test_the_embedding_starts_as_its_init_says_and_an_untied_head_small(init, deviation):
    tied = MinMaxRNC_LM(500, MinMaxRNCLMConfig.small(n_layers=1, embedding_init=init))
    assert tied.head.weight is tied.embedding.weight
    assert_normal(tied.embedding.weight, deviation)
    model = MinMaxRNC_LM(500, MinMaxRNCLMConfig.small(n_layers=1, embedding_init=init, tie_weights=False))
    assert_normal(model.embedding.weight, deviation)
    assert_normal(model.head.weight, sqrt(2 / (5 * 90)))
    assert not torch.equal(model.embedding.weight, model.head.weight)


@pytest.mark.parametrize("n_layers", [1, 5])
def test_a_model_tells_its_depth_to_its_parts(n_layers):
    model = MinMaxRNC_LM(3, MinMaxRNCLMConfig.small(d_model=WIDTH, d_state=STATES, n_layers=n_layers))
    layer = model.backbone.layers[-1]
    assert_normal(layer.neuron.output.weight, 2 / (n_layers * sqrt(STATES)))
    assert_normal(layer.ffn.down.weight, 2 / (n_layers * sqrt(390)))


def test_equal_seeds_give_equal_weights():
    torch.manual_seed(3)
    one = MinMaxRNC_LM(7, MinMaxRNCLMConfig.small(degree=2)).state_dict()
    torch.manual_seed(3)
    other = MinMaxRNC_LM(7, MinMaxRNCLMConfig.small(degree=2)).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
