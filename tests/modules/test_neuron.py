"""The neuron equals its formula: projections, cells, output gate."""

import itertools

import module_definitions as definition
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from module_definitions import LAYOUTS, assert_close, randomise_

from latchwork import MinMaxNeuron
from latchwork.modules.cells import SelectionCell, make_cells
from reset_cases import RESETS, make_reset

each_degree = pytest.mark.parametrize("degree", [1, 2, 3])


def make_neuron(dtype=torch.float64, *, degree=1, levels=None, **options):
    return randomise_(MinMaxNeuron(5, make_cells(6, degree=degree, levels=levels), **options)).to(dtype)


@given(
    sizes=st.tuples(st.integers(0, 4), st.integers(0, 7), st.integers(1, 4)),
    degree=st.integers(1, 4),
    units=st.integers(1, 4),
    levels=st.none() | st.integers(2, 9),
    output_gate=st.booleans(),
    train_init=st.booleans(),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_neuron_and_its_gradients_equal_the_formula(
    sizes, degree, units, levels, output_gate, train_init, carried, reset, seed
):
    torch.manual_seed(seed)
    (B, T, d), D = sizes, units * degree
    cells = make_cells(D, degree=degree, levels=levels)
    neuron = randomise_(MinMaxNeuron(d, cells, output_gate=output_gate, train_init=train_init)).double()
    u = torch.randn(B, T, d, dtype=torch.float64, requires_grad=True)
    state = torch.randn(B, D, dtype=torch.float64, requires_grad=True) if carried else None
    when = make_reset(reset, B, T)
    results = [neuron(u, state, reset=when), definition.neuron(neuron, u, state, when)]
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected)
    if levels is not None:  # the formula of rounding has no gradient
        return
    leaves = [u, *neuron.parameters()] + ([state] if carried else [])
    grads = [torch.randn_like(each) for each in results[0]]
    options = {"allow_unused": True, "materialize_grads": True}
    y, x = results[0]
    if not x.requires_grad:  # no step, and no state that could learn
        results, grads = [[y], results[1][:1]], grads[:1]
    found, expected = (torch.autograd.grad(result, leaves, grads, **options) for result in results)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-10)


@each_degree
def test_strides_of_the_input_do_not_matter_to_a_neuron(degree):
    neuron, u = make_neuron(degree=degree), torch.randn(3, 4, 5, dtype=torch.float64)
    state, reset = torch.randn(6, 3, dtype=torch.float64).T, (torch.rand(4, 3) < 0.3).T
    expected = neuron(u, state.contiguous(), reset=reset.contiguous())
    for name, layout in LAYOUTS.items():
        for one, other in zip(neuron(layout(u), state, reset=reset), expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-12, atol=1e-12), name


def test_dropout_is_of_the_input_before_all_projections():
    neuron = MinMaxNeuron(40, 6, dropout=0.5)
    u = torch.ones(1, 1, 40)
    torch.manual_seed(1)
    y, _ = neuron(u)
    torch.manual_seed(1)
    dropped = torch.nn.functional.dropout(u, 0.5)
    expected, _ = neuron.eval()(dropped)
    assert_close(y, expected, 1e-6)
    assert torch.equal(neuron(u)[0], neuron(u)[0])


def test_the_defaults_of_a_neuron_are_those_of_the_paper():
    neuron = MinMaxNeuron(5, 6)
    assert (str(neuron.cells[0]), neuron.output_gate, neuron.dropout.p) == ("ScalarCell(6)", True, 0.0)
    assert sum(each.numel() for each in neuron.parameters()) == 3 * 6 * 6 + 5 * 7


def test_an_unknown_start_lists_those_there_are():
    with pytest.raises(ValueError, match=r"s_r_init must be one of .*small_init.*; got 'kaimng'"):
        MinMaxNeuron(5, 6, s_r_init="kaimng")


@pytest.mark.parametrize("T", [1, 3])
def test_a_state_of_the_wrong_shape_is_an_error(T):
    for shape, cells in itertools.product([(2, 5), (1, 6), (3, 6), (12,)], [6, [SelectionCell(6, 3)]]):
        neuron = MinMaxNeuron(5, cells)
        with pytest.raises((ValueError, RuntimeError)):
            neuron(torch.zeros(2, T, 5), torch.zeros(shape))
