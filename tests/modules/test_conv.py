"""The two convolutions equal their formulas."""

import itertools

import module_definitions as definition
import pytest
import torch
from module_definitions import LAYOUTS, LENGTHS, assert_close, randomise_

from latchwork.modules import BasicConv, GatedConv
from reset_cases import RESETS, make_reset

both_kinds = pytest.mark.parametrize("kind", [BasicConv, GatedConv])


@both_kinds
def test_a_convolution_equals_its_formula(kind):
    conv = randomise_(kind(5).double())
    for B, T, carried, reset in itertools.product([0, 1, 3], LENGTHS, [False, True], RESETS):
        u, when = torch.randn(B, T, 5, dtype=torch.float64), make_reset(reset, B, T)
        state = torch.randn(B, 5, dtype=torch.float64) if carried else None
        expected = definition.convolution(conv, u, state, when)
        for one, other in zip(conv(u, state, reset=when), expected, strict=True):
            assert_close(one, other)


@both_kinds
def test_strides_of_the_input_do_not_matter_to_a_convolution(kind):
    conv, u = kind(5), torch.randn(3, 4, 5)
    for layout in LAYOUTS.values():
        assert_close(conv(layout(u))[0], conv(u)[0], 1e-6)


@both_kinds
def test_the_state_of_a_convolution_is_its_last_input(kind):
    conv, u = randomise_(kind(4)), torch.randn(2, 6, 4)
    _, state = conv(u[:, :4])
    assert torch.equal(state, u[:, 3])
    assert_close(conv(u[:, 4:], state)[0], conv(u)[0][:, 4:], 1e-6)
    assert torch.equal(conv(u[:, :0], state)[1], state)


@both_kinds
def test_a_reset_hides_even_a_nan_before_it(kind):
    conv, u = randomise_(kind(4)), torch.randn(1, 4, 4)
    alone = conv(u[:, 2:])[0]
    u[:, :2] = torch.nan
    y, _ = conv(u, torch.full((1, 4), torch.nan), reset=torch.tensor([[True, False, True, False]]))
    assert_close(y[:, 2:], alone, 1e-6)
    assert y[:, :2].isnan().all()


@pytest.mark.parametrize("value", [-3.0, 0, 0.5])
def test_the_gate_starts_at_its_initial_value(value):
    assert torch.equal(GatedConv(3, value).g, torch.full((3,), float(value)))


def test_a_closed_gate_passes_the_input_and_an_open_one_the_input_before():
    u = torch.randn(1, 5, 3)
    assert torch.equal(GatedConv(3, -200.0)(u)[0], u)
    assert torch.equal(GatedConv(3, 200.0)(u)[0][:, 1:], u[:, :-1])


@both_kinds
def test_a_convolution_has_the_parameters_of_its_formula(kind):
    count = sum(each.numel() for each in kind(7).parameters())
    assert count == (7 * 14 + 7 if kind is BasicConv else 7)
