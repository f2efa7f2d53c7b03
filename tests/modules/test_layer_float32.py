"""A layer in float32, where one kernel may do the work of its parts, equals the same formula and forgets no option."""

import copy
import itertools

import pytest
import torch
from module_definitions import LAYOUTS, assert_close, make_reset, randomise_
from test_layer import CONVOLUTIONS, NETWORKS, NORMS, define
from torch import nn

from latchwork import MinMaxLayer, MinMaxNeuron, State
from latchwork.modules import BasicConv, FeedForward, GatedFeedForward


def make_layer(d=5, D=6, norm="layernorm", conv=BasicConv, ffn=GatedFeedForward, act_fn="relu", dropout=0.0, **options):
    ffn = ffn(d, act_fn=act_fn, dropout=dropout)
    return randomise_(MinMaxLayer(conv=conv(d), ffn=ffn, neuron=MinMaxNeuron(d, D, **options), norm_type=norm))


def make_inputs(layer, B, T, carried, reset):
    u = torch.randn(B, T, layer.neuron.d_model)
    widths = (layer.neuron.d_model, layer.neuron.d_state)
    state = State(*(torch.randn(B, width) for width in widths)) if carried else None
    return u, state, make_reset(reset, B, T)


def gradients(run, layer, u, state, reset, weights):
    """Results and gradients of a weighted sum of all results, in float64."""
    leaves = [each.detach().requires_grad_() for each in (u, *(() if state is None else state))]
    results = run(layer, leaves[0], None if state is None else State(*leaves[1:]), reset)
    loss = sum((one * other).sum() for one, other in zip(results, weights, strict=True))
    found = torch.autograd.grad(loss, [*leaves, *layer.parameters()], allow_unused=True, materialize_grads=True)
    return [each.detach().double() for each in (*results, *found)]


def run(layer, u, state, reset):
    y, after = layer(u, state, reset=reset)
    return y, *after


def widen(layer):
    """The same layer in float64, with the epsilon that rmsnorm takes from the type."""
    wide = copy.deepcopy(layer).double()
    for part in wide.modules():
        if isinstance(part, nn.RMSNorm):
            part.eps = torch.finfo(torch.float32).eps
    return wide


def assert_equals_definition(layer, norm, act_fn, u, state, reset, tolerance=2e-4):
    B, _, d = u.shape
    weights = [torch.randn(*shape) for shape in (u.shape, (B, d), (B, layer.neuron.d_state))]
    found = gradients(run, layer, u, state, reset, weights)
    expected = gradients(
        lambda layer, *inputs: define(layer, norm, act_fn, *inputs),
        widen(layer),
        u.double(),
        None if state is None else state.to(torch.float64),
        reset,
        [each.double() for each in weights],
    )
    for one, other in zip(found, expected, strict=True):
        scale = max(1.0, other.abs().max().item() if other.numel() else 1.0)
        assert_close(one / scale, other / scale, tolerance)


@pytest.mark.parametrize(
    ("norm", "conv", "ffn", "act_fn"), list(itertools.product(NORMS, CONVOLUTIONS, NETWORKS, ["relu", "relu^2"]))
)
@pytest.mark.parametrize("output_gate", [False, True])
def test_a_layer_and_its_gradients_equal_the_formula(output_gate, norm, conv, ffn, act_fn):
    layer = make_layer(5, 6, norm, conv, ffn, act_fn, output_gate=output_gate, train_init=True)
    for carried, reset in [(False, "never"), (True, "random")]:
        assert_equals_definition(layer, norm, act_fn, *make_inputs(layer, 3, 13, carried, reset))


@pytest.mark.parametrize("d", [1, 7, 8, 17, 33, 90])
@pytest.mark.parametrize("D", [1, 13, 40])
def test_every_width_equals_the_formula(D, d):
    layer = make_layer(d, D, norm="rmsnorm")
    assert_equals_definition(layer, "rmsnorm", "relu", *make_inputs(layer, 2, 17, True, "random"))


@pytest.mark.parametrize(("B", "T"), [(1, 31), (1, 32), (1, 33), (31, 1), (64, 1), (32, 2), (3, 100), (17, 2)])
@pytest.mark.parametrize("reset", ["everywhere", "first", "random"])
def test_every_size_equals_the_formula(reset, B, T):
    layer = make_layer(train_init=True)
    assert_equals_definition(layer, "layernorm", "relu", *make_inputs(layer, B, T, True, reset))


@pytest.mark.parametrize(("degree", "levels"), [(1, 5), (2, None), (3, 4)])
@pytest.mark.parametrize("act_fn", ["relu", "swish"])
def test_every_degree_and_number_of_levels_equals_the_formula(act_fn, degree, levels):
    layer = make_layer(act_fn=act_fn, degree=degree, levels=levels)
    u, state, reset = make_inputs(layer, 3, 13, True, "random")
    y, after = layer(u, state, reset=reset)
    expected = define(widen(layer), "layernorm", act_fn, u.double(), state.to(torch.float64), reset)
    for one, other in zip((y, *after), expected, strict=True):
        assert_close(one.double(), other, 2e-5)


@pytest.mark.parametrize("conv", CONVOLUTIONS)
def test_the_number_of_threads_changes_no_result(conv):
    layer = make_layer(conv=conv)
    inputs = make_inputs(layer, 5, 37, True, "random")
    weights = [torch.randn(*shape) for shape in ((5, 37, 5), (5, 5), (5, 6))]
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(gradients(run, layer, *inputs, weights))
    for one, other in ((0, 1), (0, 2)):
        for number, (a, b) in enumerate(zip(results[one], results[other], strict=True)):
            if number < 3:
                assert torch.equal(a, b)
            else:
                assert_close(a, b, 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_inputs_and_of_incoming_gradients_do_not_matter(layout):
    layer = make_layer()
    u, state, reset = make_inputs(layer, 4, 12, True, "random")
    scattered = State(*(each.T.contiguous().T for each in state)), reset.T.contiguous().T
    weights = [torch.randn(4, 12, 5), torch.randn(4, 5), torch.randn(4, 6)]
    turned = [LAYOUTS[layout](weights[0]), *(each.T.contiguous().T for each in weights[1:])]
    expected = gradients(run, layer, u, state, reset, weights)
    for one, other in zip(gradients(run, layer, LAYOUTS[layout](u), *scattered, turned), expected, strict=True):
        assert_close(one, other, 1e-4)


@pytest.mark.parametrize("name", ["neuron.output.bias", "every parameter"])
def test_strides_of_parameters_do_not_matter(name):
    layer = make_layer(train_init=True)
    strided = copy.deepcopy(layer)
    for full_name, value in layer.named_parameters():
        if name in (full_name, "every parameter"):
            path, last = full_name.rsplit(".", 1)
            scattered = torch.full((*value.shape, 2), torch.nan)
            scattered[..., 0] = value.detach()
            setattr(strided.get_submodule(path), last, nn.Parameter(scattered[..., 0]))
    inputs = make_inputs(layer, 4, 12, True, "random")
    weights = [torch.randn(4, 12, 5), torch.randn(4, 5), torch.randn(4, 6)]
    expected = gradients(run, layer, *inputs, weights)
    for one, other in zip(gradients(run, strided, *inputs, weights), expected, strict=True):
        assert_close(one, other, 1e-4)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("conv", CONVOLUTIONS)
def test_a_nan_reaches_the_steps_that_see_it_and_no_others(conv, norm):
    layer = make_layer(norm=norm, conv=conv)
    u = torch.randn(2, 40, 5)
    u[0, 10, 2] = torch.nan
    reset = torch.zeros(2, 40, dtype=torch.bool)
    reset[0, 20] = True
    y, state = layer(u, reset=reset)
    assert y[0, 10:20].isnan().all()
    assert not y[0, :10].isnan().any()
    assert not y[0, 20:].isnan().any()
    assert not y[1].isnan().any()
    assert not any(each.isnan().any() for each in state)


@pytest.mark.parametrize("name", ["ffn.up.weight", "ffn.down.weight", "conv.weight", "neuron.projection.weight"])
@pytest.mark.parametrize("ffn", NETWORKS)
@pytest.mark.parametrize("act_fn", ["relu", "relu^2"])
def test_a_nan_in_a_weight_is_not_hidden_by_a_relu(act_fn, ffn, name):
    layer = make_layer(norm="none", ffn=ffn, act_fn=act_fn)
    with torch.no_grad():
        layer.get_parameter(name)[0, 0] = torch.nan
    y, _ = layer(torch.randn(2, 20, 5))
    assert y.isnan().all()


def transparent_layer(dropout, dtype):
    """y = 2 u + dropout(f), f the feed-forward of u: no norm nor convolution, r out of the way, s = its input."""
    layer = make_layer(24, 24, "none", ffn=FeedForward, dropout=dropout, output_gate=False)
    with torch.no_grad():
        for each in (layer.conv.weight, layer.conv.bias, layer.neuron.projection.weight, layer.neuron.projection.bias):
            each.zero_()
        layer.neuron.projection.weight[24:] = torch.eye(24)
        layer.neuron.projection.bias[:24] = -1e6
        layer.neuron.output.weight.copy_(torch.eye(24))
        layer.neuron.output.bias.zero_()
    return layer.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.75])
def test_dropout_drops_its_share_scales_the_rest_and_has_the_gradient_of_what_it_kept(p, dtype):
    layer, u = transparent_layer(p, dtype), torch.randn(40, 30, 24, dtype=dtype)
    y, _ = layer(u)
    dropped = y.detach() - 2 * u
    kept = dropped.abs() > 1e-4
    f = layer.ffn.eval()(u).detach()
    clear = f.abs() > 1e-2
    assert kept[clear].double().mean().item() == pytest.approx(1 - p, abs=0.01)
    assert_close(dropped[kept & clear], f[kept & clear] / (1 - p), 1e-3)
    both = clear[:, 1:] & clear[:, :-1]
    assert (kept[:, 1:] & kept[:, :-1])[both].double().mean().item() == pytest.approx((1 - p) ** 2, abs=0.01)
    both = clear[..., 1:] & clear[..., :-1]
    assert (kept[..., 1:] & kept[..., :-1])[both].double().mean().item() == pytest.approx((1 - p) ** 2, abs=0.01)
    (grad,) = torch.autograd.grad(y.sum(), layer.ffn.down.bias)
    assert_close(grad, kept.sum((0, 1)).to(dtype) / (1 - p), 5e-3)


def test_dropout_follows_the_seed_and_differs_from_call_to_call():
    layer, u = transparent_layer(0.5, torch.float32), torch.randn(4, 30, 24)
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append((layer(u)[0], layer(u)[0]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(*results[0])
    assert torch.equal(layer.eval()(u)[0], layer(u)[0])


def test_dropout_of_the_neuron_is_drawn_too():
    layer, u = make_layer(), torch.randn(4, 30, 5)
    layer.neuron.dropout.p = 0.5
    assert not torch.equal(layer(u)[0], layer(u)[0])


@pytest.mark.parametrize("name", ["norm_conv", "conv", "ffn", "ffn.up", "ffn.down", "ffn.dropout", "neuron.projection"])
def test_an_exchanged_part_is_used(name):
    class Changed(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside = inside

        def __getattr__(self, attribute):
            try:
                return super().__getattr__(attribute)
            except AttributeError:
                return getattr(self.inside, attribute)

        def mix(self, *inputs):
            return self.inside.mix(*inputs) * 2

        def forward(self, *inputs):
            return self.inside(*inputs) * 2

    layer = make_layer()
    path, _, last = name.rpartition(".")
    expected, u = copy.deepcopy(layer), torch.randn(4, 20, 5)
    setattr(layer.get_submodule(path), last, Changed(layer.get_submodule(name)))
    assert not torch.allclose(layer(u)[0], expected(u)[0])


@pytest.mark.parametrize("name", ["norm_conv", "norm_ffn", "ffn.up", "ffn.down", "neuron.projection", "neuron.output"])
def test_a_hook_on_a_part_is_called_and_may_change_its_output(name):
    layer, u = make_layer(), torch.randn(4, 20, 5)
    expected, _ = layer(u)
    calls = []
    handle = layer.get_submodule(name).register_forward_hook(lambda *a: calls.append(1) or a[-1] + 1)
    assert not torch.allclose(layer(u)[0], expected)
    assert calls
    handle.remove()
    assert torch.equal(layer(u)[0], expected)


def test_a_hook_on_the_whole_layer_is_called():
    layer = make_layer()
    layer.register_forward_hook(lambda module, inputs, output: (output[0] * 0, output[1]))
    assert not layer(torch.randn(4, 20, 5))[0].any()


def test_changing_an_input_between_forward_and_backward_is_found_out():
    layer, leaf = make_layer(), torch.randn(4, 20, 5, requires_grad=True)
    u = leaf * 1
    y, _ = layer(u)
    with torch.no_grad():
        u.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_frozen_weights_get_no_gradient_and_the_rest_the_same():
    layer, u = make_layer(), torch.randn(4, 20, 5)
    layer(u)[0].square().sum().backward()
    expected = {name: value.grad for name, value in layer.named_parameters()}
    layer.zero_grad()
    layer.ffn.requires_grad_(False)
    layer.norm_conv.requires_grad_(False)
    layer(u)[0].square().sum().backward()
    for name, value in layer.named_parameters():
        if name.startswith(("ffn", "norm_conv")):
            assert value.grad is None
        else:
            assert_close(value.grad, expected[name], 1e-5)


@pytest.mark.parametrize(
    ("state", "reset"),
    [
        (((3, 5), (1, 6)), None),
        (((1, 5), (3, 6)), None),
        (((3, 5), (3, 4)), None),
        (None, torch.zeros(3, 7, dtype=torch.bool)),
        (None, torch.zeros(3, 20)),
    ],
    ids=["rows of x", "rows of conv", "width of x", "shape of reset", "dtype of reset"],
)
def test_a_state_or_reset_that_does_not_fit_is_an_error(state, reset):
    state = None if state is None else State(*map(torch.zeros, state))
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        make_layer()(torch.randn(3, 20, 5), state, reset=reset)
