"""The cascade is its layers one after the other, then the feed-forward and the norm; and a state goes through."""

import itertools

import pytest
import torch
from model_cases import VARIANTS, assert_close, assert_same_run, make_config, make_model, make_state

from latchwork import MinMaxRNC, MinMaxRNCConfig, State
from reset_cases import make_reset

each_variant = pytest.mark.parametrize("variant", VARIANTS)


def make_backbone(variant="default", **changes):
    return make_model(**{**VARIANTS[variant], **changes}).backbone


def compose(backbone, u, state=None, reset=None):
    conv, x = [], []
    for number, layer in enumerate(backbone.layers):
        before = None if state is None else State(state.conv[number], state.x[number])
        u, after = layer(u, before, reset=reset)
        conv.append(after.conv)
        x.append(after.x)
    if backbone.config.use_postlayers_ffn:
        u = u + backbone.postlayers_ffn(backbone.norm_postlayers_ffn(u))
    return backbone.norm_postlayers(u), State(torch.stack(conv), torch.stack(x))


@each_variant
def test_a_cascade_is_its_layers_then_the_feed_forward_then_the_norm(variant):
    backbone = make_backbone(variant, n_layers=3)
    for T, reset in itertools.product((1, 9), ("never", "random", "first")):
        u, when = torch.randn(2, T, 6, dtype=torch.float64), make_reset(reset, 2, T)
        for state in (None, make_state(backbone, 2)):
            assert_same_run(backbone(u, state, reset=when), compose(backbone, u, state, when))


@pytest.mark.parametrize("n_layers", [1, 2, 5])
def test_the_state_has_one_slice_for_each_layer(n_layers):
    backbone = make_backbone(n_layers=n_layers, d_state=4)
    y, state = backbone(torch.randn(3, 7, 6, dtype=torch.float64))
    assert isinstance(state, State)
    assert (y.shape, state.conv.shape, state.x.shape) == ((3, 7, 6), (n_layers, 3, 6), (n_layers, 3, 4))
    assert state.batch_size == 3


@each_variant
def test_the_initial_state_is_what_no_state_means(variant):
    backbone = make_backbone(variant)
    u = torch.randn(2, 5, 6, dtype=torch.float64)
    state = backbone.initial_state(2)
    assert not state.conv.any()
    assert_same_run(backbone(u, state), backbone(u), 1e-12)
    assert backbone.initial_state(0).batch_size == 0


@pytest.mark.parametrize("grad", [False, True])
def test_chunks_equal_the_whole(grad):
    backbone = make_backbone()
    u, reset = torch.randn(2, 9, 6, dtype=torch.float64), make_reset("random", 2, 9)
    for state, chunk_size in itertools.product((None, make_state(backbone, 2)), (1, 2, 5, 8, 9, 100)):
        with torch.set_grad_enabled(grad):
            actual = backbone(u, state, reset=reset, chunk_size=chunk_size)
        assert_same_run(actual, backbone(u, state, reset=reset), 1e-12)
        assert actual[0].requires_grad == grad


@pytest.mark.parametrize(("degree", "conv_type"), [(1, "basic"), (2, "gated")])
def test_nothing_gives_nothing_and_keeps_the_state(degree, conv_type):
    backbone = make_backbone(degree=degree, conv_type=conv_type)
    for (B, T), chunk_size in itertools.product([(0, 0), (0, 1), (0, 5), (2, 0)], (None, 3)):
        state = make_state(backbone, B)
        u, reset = torch.zeros(B, T, 6, dtype=torch.float64), torch.zeros(B, T, dtype=torch.bool)
        y, after = backbone(u, state, reset=reset, chunk_size=chunk_size)
        assert (y.shape, after.conv.shape, after.x.shape) == (u.shape, state.conv.shape, state.x.shape)
        if T == 0:
            assert_same_run((y, after), (u, state))
            assert_same_run(backbone(u, chunk_size=chunk_size), (u, backbone.initial_state(B)))


def test_the_gate_of_a_convolution_starts_where_the_configuration_says():
    layer = MinMaxRNC(make_config(conv_type="gated", conv_init_val=0.5).backbone).layers[0]
    assert torch.equal(layer.conv.g, torch.full((6,), 0.5))


def test_the_dropout_of_the_first_layer_is_its_own():
    config = MinMaxRNCConfig.small(
        n_layers=3, ffn_dropout=0.3, prelayers_dropout=0.2, neuron_dropout=0.1, use_postlayers_ffn=True
    )
    backbone = MinMaxRNC(config)
    assert [layer.ffn.dropout.p for layer in backbone.layers] == [0.2, 0.3, 0.3]
    assert [layer.neuron.dropout.p for layer in backbone.layers] == [0.1] * 3
    assert backbone.postlayers_ffn.dropout.p == 0.3


@pytest.mark.parametrize("variant", ["default", "degree 2, levels"])
def test_gradient_checkpointing_gives_the_same_gradients(variant):
    backbone = make_backbone(variant, train_init=True)
    u, reset = torch.randn(2, 9, 6, dtype=torch.float64, requires_grad=True), make_reset("random", 2, 9)
    state = State(*(each.requires_grad_() for each in make_state(backbone, 2)))
    leaves, found = [u, *state, *backbone.parameters()], []
    for checkpointing in (False, True):
        backbone.gradient_checkpointing = checkpointing
        y, after = backbone(u, state, reset=reset)
        loss = y.square().sum() + after.x.sum() + after.conv.sum()
        found.append(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradient_checkpointing_draws_the_same_dropout_twice(dtype):
    backbone = make_backbone(ffn_dropout=0.5, prelayers_dropout=0.3, neuron_dropout=0.2, dtype=dtype).train()
    u, found = torch.randn(4, 20, 6, dtype=dtype), []
    for checkpointing in (False, True):
        backbone.gradient_checkpointing = checkpointing
        torch.manual_seed(5)
        y, _ = backbone(u)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(backbone.parameters()))])
    for one, other in zip(*found, strict=True):
        assert_close(one, other, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"u": (2, 5, 7)}, r"u must be \(B, T, d_model = 6\); got \(2, 5, 7\)"),
        ({"u": (5, 6)}, r"u must be \(B, T, d_model = 6\); got \(5, 6\)"),
        ({"conv": (2, 3, 6)}, r"state.conv must be \(n_layers, B, 6\) = \(2, 2, 6\); got \(2, 3, 6\)"),
        ({"conv": (1, 2, 6)}, r"state.conv must be"),
        ({"x": (2, 2, 5)}, r"state.x must be \(n_layers, B, 6\) = \(2, 2, 6\); got \(2, 2, 5\)"),
        ({"x": (2, 1, 6)}, r"state.x must be"),
        ({"x": (2, 6)}, r"state.x must be"),
        ({"reset": torch.zeros(2, 4).bool()}, r"reset must be bool \(B, T\) = \(2, 5\); got torch.bool \(2, 4\)"),
        ({"reset": torch.zeros(2, 5)}, r"reset must be bool \(B, T\) = \(2, 5\); got torch.float32"),
        ({"reset": torch.zeros(5).bool()}, r"reset must be bool"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, or None; got 0"),
        ({"chunk_size": -3}, "chunk_size must be at least 1, or None; got -3"),
    ],
    ids=str,
)
def test_an_argument_that_does_not_fit_is_named(arguments, message):
    backbone = make_backbone()
    shapes = {"u": (2, 5, 6), "conv": (2, 2, 6), "x": (2, 2, 6)}
    u, conv, x = (torch.zeros(arguments.get(name, shape), dtype=torch.float64) for name, shape in shapes.items())
    rest = {name: value for name, value in arguments.items() if name not in shapes}
    with pytest.raises(ValueError, match=message):
        backbone(u, State(conv, x), **rest)


def test_states_stay_where_they_were_put_for_ten_thousand_steps():
    """With r high and s low no step changes a state: the last is the first, bit for bit."""
    backbone = make_backbone(n_layers=1, output_gate=False, dtype=torch.float32)
    neuron = backbone.layers[0].neuron
    with torch.no_grad():
        neuron.projection.weight.zero_()
        neuron.projection.bias[:6], neuron.projection.bias[6:] = 100, -100
    state = make_state(backbone, 1)
    with torch.no_grad():
        _, after = backbone(torch.randn(1, 10_000, 6), state, chunk_size=999)
    assert torch.equal(after.x, state.x)
