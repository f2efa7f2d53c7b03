"""The two convolutions equal their formulas."""

import module_definitions as definition
import pytest
import torch
from module_definitions import LAYOUTS, LENGTHS, RESETS, assert_close, make_reset, randomise_

from latchwork.modules import BasicConv, GatedConv

both_kinds = pytest.mark.parametrize("kind", [BasicConv, GatedConv])


@both_kinds
@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("T", LENGTHS)
def test_a_convolution_equals_its_formula(T, carried, reset, kind):
    conv = randomise_(kind(5).double())
    u, when = torch.randn(3, T, 5, dtype=torch.float64), make_reset(reset, 3, T)
    state = torch.randn(3, 5, dtype=torch.float64) if carried else None
    for actual, expected in zip(conv(u, state, reset=when), definition.convolution(conv, u, state, when), strict=True):
        assert_close(actual, expected)


@both_kinds
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_the_input_do_not_matter_to_a_convolution(layout, kind):
    conv, u = kind(5), torch.randn(3, 4, 5)
    assert_close(conv(LAYOUTS[layout](u))[0], conv(u)[0], 1e-6)


@both_kinds
@pytest.mark.parametrize("B", [0, 1, 2])
@pytest.mark.parametrize("T", [0, 1, 3])
def test_a_convolution_of_nothing_has_the_right_shapes(T, B, kind):
    y, last = kind(1)(torch.randn(B, T, 1))
    assert (y.shape, last.shape) == ((B, T, 1), (B, 1))


@both_kinds
def test_a_convolution_starts_from_zero(kind):
    conv, u = randomise_(kind(4)), torch.randn(2, 3, 4)
    assert torch.equal(conv(u)[0], conv(u, torch.zeros(2, 4))[0])


@both_kinds
def test_the_state_of_a_convolution_is_its_last_input(kind):
    conv, u = randomise_(kind(4)), torch.randn(2, 6, 4)
    _, state = conv(u[:, :4])
    assert torch.equal(state, u[:, 3])
    assert_close(conv(u[:, 4:], state)[0], conv(u)[0][:, 4:], 1e-6)


@both_kinds
def test_no_steps_leave_the_state_of_a_convolution_as_it_was(kind):
    state = torch.randn(2, 4)
    assert torch.equal(kind(4)(torch.zeros(2, 0, 4), state)[1], state)
    assert torch.equal(kind(4)(torch.zeros(2, 0, 4))[1], torch.zeros(2, 4))


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
