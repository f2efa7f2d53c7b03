"""Rounding to levels: a finite grid, the nearest point of it, and a gradient that goes straight through."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from module_definitions import nearest_level

from latchwork.modules import MinMaxNeuron
from latchwork.modules.units import round_to_levels

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
LEVELS = [2, 3, 4, 5, 6, 8, 9, 16, 17, 33]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_number = pytest.mark.parametrize("levels", LEVELS)


def spread(dtype):
    """Values across the grid and beyond it on both sides."""
    return torch.linspace(-1.5, 1.5, 4001, dtype=torch.float64).to(dtype)


@each_dtype
@each_number
def test_there_are_exactly_that_many_values(levels, dtype):
    rounded = round_to_levels(spread(dtype), levels)
    assert rounded.dtype == dtype
    found = rounded.unique()
    assert len(found) == levels
    ideal = torch.linspace(-1, 1, levels, dtype=torch.float64)
    torch.testing.assert_close(found.double(), ideal, rtol=0, atol=2 * torch.finfo(dtype).eps)


@each_dtype
@each_number
def test_each_value_goes_to_the_nearest_level(levels, dtype):
    values = spread(dtype)
    distance = (values.double().clamp(-1, 1) - round_to_levels(values, levels).double()).abs()
    least = (values.double().clamp(-1, 1) - nearest_level(values, levels)).abs()
    assert (distance - least).max() <= 2 * torch.finfo(dtype).eps


@each_dtype
@each_number
def test_a_level_stays_where_it_is(levels, dtype):
    rounded = round_to_levels(spread(dtype), levels)
    assert torch.equal(round_to_levels(rounded, levels), rounded)


@each_dtype
@pytest.mark.parametrize("levels", [2, 3, 5, 9, 17])
def test_levels_a_power_of_two_apart_are_exact(levels, dtype):
    exact = (torch.arange(levels, dtype=torch.float64) * (2 / (levels - 1)) - 1).to(dtype)
    assert torch.equal(round_to_levels(spread(dtype), levels).unique(), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_grid_ends_at_minus_one_and_one_and_is_symmetric(dtype):
    for levels in range(2, 65):
        grid = round_to_levels(spread(dtype), levels).unique()
        assert grid[-1] == 1, levels
        assert torch.equal(grid, -grid.flip(0)), levels


@given(levels=st.integers(2, 100), value=st.floats(-4, 4), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_no_level_is_nearer(levels, value, dtype):
    value = torch.tensor([value], dtype=dtype)
    rounded = round_to_levels(value, levels)
    clamped = value.double().clamp(-1, 1)
    assert (rounded.double() - clamped).abs() <= (nearest_level(clamped, levels) - clamped).abs() + 1e-6


@each_dtype
@each_number
def test_the_gradient_of_rounding_is_the_identity_inside_and_outside(levels, dtype):
    values = spread(dtype).requires_grad_()
    grad = torch.randn(values.shape).to(dtype)
    (found,) = torch.autograd.grad(round_to_levels(values, levels), values, grad)
    assert torch.equal(found, grad)


def test_a_nan_stays_a_nan():
    assert round_to_levels(torch.tensor(torch.nan), 3).isnan()


def test_infinity_goes_to_the_end_of_the_grid():
    assert round_to_levels(torch.tensor([-torch.inf, torch.inf]), 3).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("shape", [(0,), (), (2, 0, 3)], ids=str)
def test_rounding_nothing_or_one_number_keeps_the_shape(shape):
    assert round_to_levels(torch.zeros(shape), 3).shape == shape


@each_dtype
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("levels", [2, 3, 4, 7])
def test_the_states_of_a_neuron_with_levels_stay_on_the_grid(levels, degree, dtype):
    neuron = MinMaxNeuron(4, 6, degree=degree, levels=levels, train_init=levels % 2 == 0)
    with torch.no_grad():
        neuron.projection.weight.mul_(3)
        neuron.x0.copy_(torch.randn(6))
    neuron = neuron.to(dtype)
    u = torch.randn(2, 20, 4).to(dtype)
    state, seen = None, []
    for t in range(20):
        _, state = neuron(u[:, t : t + 1], state)
        seen.append(state)
    grid = round_to_levels(spread(dtype), levels).unique()
    states = torch.stack(seen, 1)
    assert torch.isin(states, grid).all()
    assert torch.equal(neuron(u)[1], state)
    assert len(states.unique()) > 1


def test_a_neuron_with_levels_learns():
    neuron = MinMaxNeuron(4, 6, levels=3, train_init=True)
    y, _ = neuron(torch.randn(2, 5, 4))
    y.square().sum().backward()
    assert neuron.projection.weight.grad.any()
    assert neuron.x0.grad is not None
