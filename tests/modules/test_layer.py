"""A layer equals its formula: only the neuron's output enters the residual stream."""

import itertools

import module_definitions as definition
import pytest
import torch
from module_definitions import LAYOUTS, assert_close, make_reset, randomise_

from latchwork import MinMaxLayer, MinMaxNeuron, State
from latchwork.modules import BasicConv, FeedForward, GatedConv, GatedFeedForward

NORMS = ["layernorm", "rmsnorm", "none"]
CONVOLUTIONS = [BasicConv, GatedConv]
CASES = [(False, "never"), (True, "never"), (False, "random"), (True, "random"), (True, "first")]
NETWORKS = [FeedForward, GatedFeedForward]


def make_layer(norm="layernorm", conv=BasicConv, ffn=GatedFeedForward, act_fn="relu", dropout=0.0, **options):
    neuron = MinMaxNeuron(5, 6, **options)
    return randomise_(
        MinMaxLayer(conv=conv(5), ffn=ffn(5, act_fn=act_fn, dropout=dropout), neuron=neuron, norm_type=norm)
    ).double()


def define(layer, norm, act_fn, u, state=None, reset=None):
    gated = isinstance(layer.ffn, GatedFeedForward)
    v = definition.norm(norm, layer.norm_conv, u)
    conv, last = definition.convolution(layer.conv, v, None if state is None else state.conv, reset)
    ffn = definition.feed_forward(layer.ffn, act_fn, gated, definition.norm(norm, layer.norm_ffn, u + conv))
    w = definition.norm(norm, layer.norm_neuron, u + conv + ffn)
    y, x = definition.neuron(layer.neuron, w, None if state is None else state.x, reset)
    return u + y, last, x


def assert_equals_definition(layer, norm, act_fn, u, state, reset):
    y, after = layer(u, state, reset=reset)
    assert isinstance(after, State)
    expected, conv, x = define(layer, norm, act_fn, u, state, reset)
    assert_close(y, expected, 1e-11)
    assert_close(after.conv, conv, 1e-11)
    assert_close(after.x, x, 1e-11)


@pytest.mark.parametrize(
    ("norm", "conv", "ffn", "output_gate"), list(itertools.product(NORMS, CONVOLUTIONS, NETWORKS, [False, True]))
)
@pytest.mark.parametrize("degree", [1, 2])
def test_a_layer_equals_its_formula(degree, norm, conv, ffn, output_gate):
    layer = make_layer(norm, conv, ffn, output_gate=output_gate, degree=degree)
    for T, carried, reset in [
        (1, False, "never"),
        (1, True, "random"),
        *((5, carried, reset) for carried, reset in CASES),
    ]:
        u = torch.randn(2, T, 5, dtype=torch.float64)
        state = State(*(torch.randn(2, width, dtype=torch.float64) for width in (5, 6))) if carried else None
        assert_equals_definition(layer, norm, "relu", u, state, make_reset(reset, 2, T))


@pytest.mark.parametrize("act_fn", definition.ACTIVATIONS)
@pytest.mark.parametrize(("degree", "levels"), [(1, 5), (3, None), (3, 4)])
def test_a_layer_equals_its_formula_with_other_activations_degrees_and_levels(degree, levels, act_fn):
    layer = make_layer(act_fn=act_fn, degree=degree, levels=levels, train_init=True)
    u = torch.randn(2, 6, 5, dtype=torch.float64)
    assert_equals_definition(layer, "layernorm", act_fn, u, None, make_reset("random", 2, 6))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("degree", [1, 3])
def test_the_gradients_of_a_layer_equal_those_of_the_formula(degree, norm):
    layer = make_layer(norm, degree=degree, train_init=True)
    u = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    state = State(*(torch.randn(2, width, dtype=torch.float64, requires_grad=True) for width in (5, 6)))
    reset = torch.tensor([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)
    leaves = [u, *state, *layer.parameters()]
    grad = torch.randn_like(u)
    found = torch.autograd.grad(layer(u, state, reset=reset)[0], leaves, grad)
    expected = torch.autograd.grad(define(layer, norm, "relu", u, state, reset)[0], leaves, grad)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-10)


@pytest.mark.parametrize("conv", CONVOLUTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_the_input_do_not_matter_to_a_layer(layout, conv):
    layer, u = make_layer(conv=conv), torch.randn(3, 4, 5, dtype=torch.float64)
    assert_close(layer(LAYOUTS[layout](u))[0], layer(u)[0])


@pytest.mark.parametrize("conv", CONVOLUTIONS)
def test_the_state_of_the_convolution_is_the_normalised_input(conv):
    layer, u = make_layer(conv=conv), torch.randn(2, 4, 5, dtype=torch.float64)
    _, state = layer(u)
    assert_close(state.conv, layer.norm_conv(u)[:, -1])


@pytest.mark.parametrize("conv", CONVOLUTIONS)
@pytest.mark.parametrize("B", [0, 1, 2])
@pytest.mark.parametrize("T", [0, 1, 3])
def test_a_layer_of_nothing_has_the_right_shapes_and_keeps_the_state(T, B, conv):
    layer = make_layer(conv=conv)
    state = State(*(torch.randn(B, width, dtype=torch.float64) for width in (5, 6)))
    for before in (None, state):
        y, after = layer(torch.randn(B, T, 5, dtype=torch.float64), before, reset=torch.zeros(B, T).bool())
        assert (y.shape, after.conv.shape, after.x.shape) == ((B, T, 5), (B, 5), (B, 6))
        if T == 0:
            assert torch.equal(after.conv, torch.zeros(B, 5) if before is None else state.conv)
            assert torch.equal(after.x, layer.neuron.x0.expand(B, 6) if before is None else state.x)


@pytest.mark.parametrize("cut", [1, 4])
@pytest.mark.parametrize("conv", CONVOLUTIONS)
@pytest.mark.parametrize("degree", [1, 2])
def test_a_nan_before_a_reset_reaches_neither_outputs_nor_gradients_after_it(degree, conv, cut):
    layer = make_layer(conv=conv, degree=degree)
    u = torch.randn(2, 7, 5, dtype=torch.float64)
    alone = u[:, cut:].clone().requires_grad_()
    u[:, :cut] = torch.nan
    u.requires_grad_()
    y, state = layer(u, reset=(torch.arange(7) == cut).expand(2, 7))
    expected, expected_state = layer(alone)
    assert_close(y[:, cut:], expected)
    for one, other in zip(state, expected_state, strict=True):
        assert_close(one, other)
    grad = torch.randn_like(expected)
    (found,) = torch.autograd.grad(y[:, cut:], u, grad)
    assert_close(found[:, cut:], *torch.autograd.grad(expected, alone, grad))


@pytest.mark.parametrize(
    ("ffn_dropout", "neuron_dropout", "expected"), [(0.0, 0.0, False), (0.1, 0.0, True), (0.0, 0.1, True)]
)
def test_a_layer_knows_whether_it_draws_random_numbers(ffn_dropout, neuron_dropout, expected):
    layer = make_layer(dropout=ffn_dropout)
    layer.neuron.dropout.p = neuron_dropout
    assert layer.draws_random_numbers() == expected
    u = torch.randn(1, 5, 5, dtype=torch.float64)
    assert torch.equal(layer(u)[0], layer(u)[0]) != expected
    assert not layer.eval().draws_random_numbers()
    assert torch.equal(layer(u)[0], layer(u)[0])


def test_an_unknown_norm_lists_those_there_are():
    with pytest.raises(ValueError, match=r"norm_type must be one of .*layernorm.*; got 'batchnorm'"):
        make_layer("batchnorm")
