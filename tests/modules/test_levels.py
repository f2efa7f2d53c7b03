"""Rounding to levels: a finite grid, the nearest point of it, and a gradient that goes straight through."""

import pytest
import torch
from module_definitions import nearest_level

from latchwork.modules import MinMaxNeuron
from latchwork.modules.cells import make_cells
from latchwork.modules.cells.cell import round_to_levels

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
LEVELS = [2, 3, 4, 5, 6, 8, 9, 16, 17, 33]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def spread(dtype):
    """Values across the grid and beyond it on both sides."""
    return torch.linspace(-1.5, 1.5, 4001, dtype=torch.float64).to(dtype)


@each_dtype
def test_each_value_goes_to_the_nearest_of_so_many_levels_and_stays_there(dtype):
    for levels in LEVELS:
        values = spread(dtype).requires_grad_()
        rounded, off = round_to_levels(values, levels), 2 * torch.finfo(dtype).eps
        assert rounded.dtype == dtype
        clamped = values.detach().double().clamp(-1, 1)
        least = (clamped - nearest_level(values.detach(), levels)).abs()
        assert ((clamped - rounded.detach().double()).abs() - least).max() <= off
        ideal = torch.arange(levels, dtype=torch.float64) * (2 / (levels - 1)) - 1
        grid = rounded.detach().unique()
        torch.testing.assert_close(grid.double(), ideal, rtol=0, atol=off)
        if levels in (2, 3, 5, 9, 17, 33):  # a power of two apart
            assert torch.equal(grid, ideal.to(dtype))
        assert torch.equal(round_to_levels(rounded, levels), rounded)
        grad = torch.randn(values.shape).to(dtype)
        assert torch.equal(torch.autograd.grad(rounded, values, grad)[0], grad)  # inside the grid and outside


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_grid_ends_at_minus_one_and_one_and_is_symmetric(dtype):
    for levels in range(2, 65):
        grid = round_to_levels(spread(dtype), levels).unique()
        assert grid[-1] == 1, levels
        assert torch.equal(grid, -grid.flip(0)), levels


def test_a_nan_stays_a_nan_and_infinity_goes_to_the_end_of_the_grid():
    assert round_to_levels(torch.tensor(torch.nan), 3).isnan()
    assert round_to_levels(torch.tensor([-torch.inf, torch.inf]), 3).tolist() == [-1.0, 1.0]


@each_dtype
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_states_of_a_neuron_with_levels_stay_on_the_grid_and_it_learns(degree, dtype):
    for levels in (2, 3, 4, 7):
        neuron = MinMaxNeuron(4, make_cells(6, degree=degree, levels=levels), train_init=True)
        with torch.no_grad():
            neuron.projection.weight.mul_(3)
            neuron.x0.copy_(torch.randn(6))
        neuron, u = neuron.to(dtype), torch.randn(2, 20, 4).to(dtype)
        state, seen = None, []
        for t in range(20):
            _, state = neuron(u[:, t : t + 1], state)
            seen.append(state)
        states = torch.stack(seen, 1)
        assert torch.isin(states, round_to_levels(spread(dtype), levels).unique()).all()
        assert len(states.unique()) > 1
        y, last = neuron(u)
        assert torch.equal(last, state)
        y.square().sum().backward()
        assert neuron.projection.weight.grad.any()
        assert neuron.x0.grad is not None
