"""A layer, part by part, equals its formula: only the neuron's output enters the residual stream."""

import module_definitions as definition
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from module_definitions import LAYOUTS, assert_close, randomise_

from latchwork import MinMaxLayer, MinMaxNeuron, State
from latchwork.modules import BasicConv, FeedForward, GatedConv, GatedFeedForward
from latchwork.modules.cells import make_cells
from reset_cases import RESETS, make_reset

NORMS = ["layernorm", "rmsnorm", "none"]
CONVOLUTIONS = [BasicConv, GatedConv]
NETWORKS = [FeedForward, GatedFeedForward]
both_convolutions = pytest.mark.parametrize("conv", CONVOLUTIONS)


def make_layer(
    norm="layernorm",
    conv=BasicConv,
    ffn=GatedFeedForward,
    act_fn="relu",
    dropout=0.0,
    *,
    degree=1,
    levels=None,
    **options,
):
    neuron = MinMaxNeuron(5, make_cells(6, degree=degree, levels=levels), **options)
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


@given(
    kinds=st.tuples(*(st.sampled_from(each) for each in (NORMS, CONVOLUTIONS, NETWORKS, list(definition.ACTIVATIONS)))),
    degree=st.integers(1, 3),
    levels=st.none() | st.sampled_from([4, 5]),
    output_gate=st.booleans(),
    T=st.sampled_from([1, 2, 6]),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_layer_and_its_gradients_equal_the_formula(kinds, degree, levels, output_gate, T, carried, reset, seed):
    torch.manual_seed(seed)
    norm, _, _, act_fn = kinds
    layer = make_layer(*kinds, degree=degree, levels=levels, output_gate=output_gate, train_init=True)
    u, when = torch.randn(2, T, 5, dtype=torch.float64, requires_grad=True), make_reset(reset, 2, T)
    state = State(*(torch.randn(2, n, dtype=torch.float64, requires_grad=True) for n in (5, 6))) if carried else None
    y, after = layer(u, state, reset=when)
    assert isinstance(after, State)
    found, expected = (y, *after), define(layer, norm, act_fn, u, state, when)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-11)
    if levels is not None:  # the formula of rounding has no gradient
        return
    leaves, grads = [u, *(state or ()), *layer.parameters()], [torch.randn_like(each) for each in found]
    options = {"allow_unused": True, "materialize_grads": True}
    gradients = [torch.autograd.grad(each, leaves, grads, **options) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        scale = max(1.0, other.abs().max().item())
        assert_close(one / scale, other / scale, 1e-9)


def test_a_layer_is_made_of_its_parts_and_its_drive_is_what_the_neuron_projects():
    layer, u = make_layer(), torch.randn(2, 4, 5, dtype=torch.float64)
    before, reset = torch.randn(2, 5, dtype=torch.float64), make_reset("random", 2, 4)
    inside, last = layer.before_neuron(u, before, reset)
    assert torch.equal(layer.drive(u, before, reset), layer.neuron.project(inside))
    y, after = layer(u, State(before, layer.neuron.start().expand(2, 6)), reset=reset)
    assert torch.equal(y, u + layer.neuron(inside, reset=reset)[0])
    assert torch.equal(after.conv, last)
    assert torch.equal(last, layer.norm_conv(u)[:, -1])


@both_convolutions
def test_strides_of_the_input_do_not_matter_to_a_layer(conv):
    layer, u = make_layer(conv=conv), torch.randn(3, 4, 5, dtype=torch.float64)
    for layout in LAYOUTS.values():
        assert_close(layer(layout(u))[0], layer(u)[0])


@both_convolutions
@pytest.mark.parametrize("degree", [1, 2])
def test_a_nan_before_a_reset_reaches_neither_outputs_nor_gradients_after_it(degree, conv):
    layer = make_layer(conv=conv, degree=degree)
    for cut in (1, 4):
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
    ("u", "state", "reset", "message"),
    [
        ((3, 4, 6), None, None, r"u must be \(B, T, d_model = 5\); got \(3, 4, 6\)"),
        ((4, 5), None, None, r"u must be \(B, T, d_model = 5\); got \(4, 5\)"),
        ((3, 4, 5), ((3, 5), (1, 6)), None, r"state must be conv \(3, 5\) and x \(3, 6\); got \(3, 5\) and \(1, 6\)"),
        ((3, 4, 5), ((1, 5), (3, 6)), None, "state must be conv"),
        ((3, 4, 5), ((3, 5), (3, 4)), None, "state must be conv"),
        ((3, 4, 5), None, torch.zeros(3, 7).bool(), r"reset must be bool \(B, T\) = \(3, 4\); got torch.bool \(3, 7\)"),
        ((3, 4, 5), None, torch.zeros(3, 4), r"reset must be bool \(B, T\) = \(3, 4\); got torch.float32"),
    ],
    ids=["width", "dimensions", "rows of x", "rows of conv", "width of x", "shape of reset", "dtype of reset"],
)
def test_an_argument_that_does_not_fit_is_named(u, state, reset, message):
    state = None if state is None else State(*map(torch.zeros, state))
    with pytest.raises(ValueError, match=message):
        make_layer()(torch.zeros(u), state, reset=reset)


def test_an_unknown_norm_lists_those_there_are():
    with pytest.raises(ValueError, match=r"norm_type must be one of .*layernorm.*; got 'batchnorm'"):
        make_layer("batchnorm")
