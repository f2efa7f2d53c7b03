"""When a layer takes the kernel's way, and that it then gives what its parts give."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from module_definitions import randomise_
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from latchwork import MinMaxLayer, MinMaxNeuron, State, use_backend
from latchwork.modules import BasicConv, FeedForward, GatedConv, GatedFeedForward, fast_layer
from latchwork.modules.cells import ScalarCell, make_cells
from latchwork.modules.linear import Linear
from latchwork.ops.layer import ACTIVATIONS
from reset_cases import make_reset
from seen_operations import seen_operations

pytestmark = pytest.mark.usefixtures("one_thread")

WHOLE = ["layer"]


def make_layer(
    d=8,
    D=6,
    *,
    norm_type="layernorm",
    conv=BasicConv,
    ffn=GatedFeedForward,
    act_fn="relu",
    dropout=0.0,
    neuron_dropout=0.0,
    output_gate=True,
    **cells,
):
    neuron = MinMaxNeuron(d, make_cells(D, **cells), output_gate=output_gate, dropout=neuron_dropout, train_init=True)
    layer = MinMaxLayer(conv=conv(d), ffn=ffn(d, act_fn=act_fn, dropout=dropout), neuron=neuron, norm_type=norm_type)
    randomise_(layer)
    with torch.no_grad():
        for value in layer.parameters():
            value.mul_(1.0 if value.dim() == 1 else 2 / value.shape[1] ** 0.5)  # values stay near 1
    return layer


def make_u(B=4, T=20, d=8):
    return torch.randn(B, T, d)


def make_state(B=4, d=8, D=6):
    return State(torch.randn(B, d), torch.rand(B, D))


def results_and_gradients(layer, u, state=None, reset=None):
    leaves = [each.detach().clone().requires_grad_() for each in (u, *(() if state is None else state))]
    y, after = layer(leaves[0], None if state is None else State(*leaves[1:]), reset=reset)
    draw = torch.Generator().manual_seed(0)
    loss = sum((each * torch.randn(each.shape, generator=draw)).sum() for each in (y, *after))
    found = torch.autograd.grad(loss, [*leaves, *layer.parameters()], allow_unused=True, materialize_grads=True)
    return [each.detach() for each in (y, *after, *found)]


def assert_close(actual, expected, tolerance=1e-4):
    for one, other in zip(actual, expected, strict=True):
        scale = max(1.0, other.abs().max().item() if other.numel() else 1.0)
        torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=tolerance)


def assert_is_as_its_parts(layer, u, state=None, reset=None, *, expected):
    """With gradients and without, and `expected` are the operations that run."""
    with torch.no_grad(), seen_operations() as seen:
        y, after = layer(u, state, reset=reset)
    assert seen == expected
    with seen_operations() as seen:
        actual = results_and_gradients(layer, u, state, reset)
    assert [name for name in seen if "backward" not in name] == expected
    assert sorted(name for name in seen if "backward" in name) == sorted(f"{name}_backward" for name in expected)
    with use_backend("torch"), seen_operations() as seen:
        plain = results_and_gradients(layer, u, state, reset)
    assert seen == []
    assert_close([y, *after], plain[:3])
    assert_close(actual, plain)


@given(
    norm_type=st.sampled_from(["layernorm", "rmsnorm", "none"]),
    conv=st.sampled_from([BasicConv, GatedConv]),
    ffn=st.sampled_from([FeedForward, GatedFeedForward]),
    act_fn=st.sampled_from(ACTIVATIONS),
    output_gate=st.booleans(),
    epsilon=st.sampled_from([None, 1.0]),
    carried=st.booleans(),
    reset=st.sampled_from(["never", "random", "first"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_layer_on_the_kernels_way_is_as_its_parts(
    norm_type, conv, ffn, act_fn, output_gate, epsilon, carried, reset, seed
):
    torch.manual_seed(seed)
    layer = make_layer(norm_type=norm_type, conv=conv, ffn=ffn, act_fn=act_fn, output_gate=output_gate)
    for part in (layer.norm_conv, layer.norm_ffn, layer.norm_neuron):
        part.eps = getattr(part, "eps", None) if epsilon is None else epsilon
    state = make_state() if carried else None
    assert_is_as_its_parts(layer, make_u(), state, make_reset(reset, 4, 20), expected=WHOLE)


@pytest.mark.parametrize(
    "cells",
    [
        {"degree": 2},
        {"levels": 5},
        {"degree": 3, "reset_form": "selection"},
        {"degree": 3, "reset_form": "transformation"},
        {"D": 4, "extra_units": [(1, 2)]},
    ],
    ids=str,
)
def test_cells_that_are_no_plain_scalars_take_the_first_half_of_it(cells):
    layer = make_layer(**cells)
    state = State(torch.randn(4, 8), layer.neuron.start().detach().expand(4, 6))  # cells move levels that are in x0
    assert_is_as_its_parts(layer, make_u(), state, make_reset("random", 4, 20), expected=["drive"])


@pytest.mark.parametrize(
    ("B", "T", "d", "expected"),
    [
        (1, fast_layer.FEWEST, 8, WHOLE),
        (1, fast_layer.FEWEST - 1, 8, []),
        (fast_layer.FEWEST, 1, 8, WHOLE),
        (4, 8, fast_layer.WIDEST, WHOLE),
        (4, 8, fast_layer.WIDEST + 1, []),
        (0, 40, 8, []),
        (40, 0, 8, []),
    ],
)
def test_few_rows_and_wide_layers_go_the_plain_way(B, T, d, expected):
    with seen_operations() as seen:
        y, state = make_layer(d)(make_u(B, T, d))
    assert (y.shape, state.conv.shape, state.x.shape) == ((B, T, d), (B, d), (B, 6))
    assert seen == expected


def test_repeated_runs_of_training_have_the_same_bits():
    torch.set_num_threads(2)
    start, u, weights = make_layer(d=33, D=20, dropout=0.3), make_u(7, 150, 33), []
    for seed in (1, 1, 2):
        layer = copy.deepcopy(start).train()
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.01)
        torch.manual_seed(seed)
        with seen_operations() as seen:
            for _ in range(3):
                optimiser.zero_grad()
                layer(u)[0].square().mean().backward()
                optimiser.step()
        assert seen.count("layer") == 3
        weights.append(torch.cat([each.detach().flatten() for each in layer.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


# ---- Where the parts may do something else than the kernel does, they do it themselves.


def with_hook(name, register="register_forward_hook"):
    return lambda layer: getattr(layer.get_submodule(name), register)(lambda *a: None)


def exchange(name, make):
    def change(layer):
        path, _, last = name.rpartition(".")
        setattr(layer.get_submodule(path), last, make(layer.get_submodule(name)))

    return change


class Twice(nn.Linear):
    def forward(self, u):
        return super().forward(u) * 2


class OurTwice(Linear):
    def forward(self, u):
        return super().forward(u) * 2


class TwiceNorm(nn.LayerNorm):
    def forward(self, u):
        return super().forward(u) * 2


class OtherNeuron(MinMaxNeuron):
    def project(self, u):
        return super().project(u) * 2


class OtherCell(ScalarCell):
    def forward(self, z, *rest):
        return super().forward(z * 2, *rest)


def replace_forward(layer):
    forward = layer.ffn.forward
    layer.ffn.forward = lambda *a: forward(*a) * 2


def like(kind):
    return lambda old: randomise_(kind(old.in_features, old.out_features))


CHANGES = {  # name: what is done to a layer
    "hook": with_hook("ffn.up"),
    "hook before": with_hook("norm_ffn", "register_forward_pre_hook"),
    "backward hook": with_hook("neuron.projection", "register_full_backward_hook"),
    "backward hook before": with_hook("neuron.projection", "register_full_backward_pre_hook"),
    "hook on a convolution": with_hook("conv"),
    "hook on a neuron": with_hook("neuron"),
    "hook on a cell": with_hook("neuron.cells.0"),
    "hook on a dropout": with_hook("ffn.dropout"),
    "another linear": exchange("ffn.up", like(Twice)),
    "subclass of ours": exchange("ffn.down", like(OurTwice)),
    "torch's linear": exchange("neuron.output", like(nn.Linear)),
    "subclass of a norm": exchange("norm_neuron", lambda old: randomise_(TwiceNorm(8))),
    "subclass of a neuron": lambda layer: setattr(layer.neuron, "__class__", OtherNeuron),
    "weight norm": lambda layer: parametrizations.weight_norm(layer.ffn.up),
    "spectral norm": lambda layer: parametrizations.spectral_norm(layer.neuron.projection.eval()),
    "no norm before conv": exchange("norm_conv", lambda old: nn.Identity()),
    "no norm before ffn": exchange("norm_ffn", lambda old: nn.Identity()),
    "another norm": exchange("norm_ffn", lambda old: nn.RMSNorm(8)),
    "another epsilon": exchange("norm_neuron", lambda old: nn.LayerNorm(8, eps=1.0)),
    "norm without weight": exchange("norm_ffn", lambda old: nn.LayerNorm(8, elementwise_affine=False)),
    "norm without bias": exchange("norm_ffn", lambda old: nn.LayerNorm(8, bias=False)),
    "no dropout": exchange("ffn.dropout", lambda old: nn.Identity()),
    "no dropout of the neuron": exchange("neuron.dropout", lambda old: nn.Identity()),
    "any feed-forward": exchange("ffn", lambda old: nn.Sequential(nn.Linear(8, 8))),
    "projection without bias": exchange("neuron.projection", lambda old: Linear(8, 18, bias=False)),
    "convolution without bias": lambda layer: setattr(layer.conv, "bias", None),
    "output without bias": exchange("neuron.output", lambda old: Linear(6, 8, bias=False)),
    "own forward": replace_forward,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_layer_does_what_its_parts_do(name):
    layer = make_layer().train()
    CHANGES[name](layer)
    assert_is_as_its_parts(layer, make_u(), expected=[])


def test_a_subclass_of_a_cell_takes_the_first_half_and_is_called():
    layer = make_layer()
    layer.neuron.cells[0].__class__ = OtherCell
    assert_is_as_its_parts(layer, make_u(), make_state(), expected=["drive"])


def test_a_hook_for_all_modules_is_called_for_every_part():
    layer, seen = make_layer(), set()
    handle = nn.modules.module.register_module_forward_hook(lambda module, *a: seen.add(module))
    try:
        layer(make_u())
    finally:
        handle.remove()
    assert seen == set(layer.modules()) - {layer.neuron.cells}  # a list is not called


TOO_LARGE = {
    "norm_ffn": lambda: nn.LayerNorm(9),
    "conv": lambda: BasicConv(9),
    "ffn.up": lambda: Linear(9, 24),
    "ffn.down": lambda: Linear(13, 8),
    "neuron.projection": lambda: Linear(9, 18),
    "neuron.output": lambda: Linear(7, 8),
}


def test_parts_that_do_not_fit_each_other_are_an_error():
    for name, make in TOO_LARGE.items():
        layer = make_layer()
        exchange(name, lambda old, make=make: make())(layer)
        with torch.no_grad(), pytest.raises(RuntimeError):
            layer(make_u())


def autocast(layer, u):
    with torch.autocast("cpu", torch.bfloat16):
        return layer(u)


WAYS = {  # how a layer is run, and which halves of the kernel's way may be used
    "in training": (lambda layer, u: layer.train()(u), WHOLE),
    "in evaluation": (lambda layer, u: layer.eval()(u), WHOLE),
    "in inference mode": (torch.inference_mode()(lambda layer, u: layer(u)), WHOLE),
    "frozen": (lambda layer, u: layer.requires_grad_(False)(u), WHOLE),
    "by the backend's name": (use_backend("cpu")(lambda layer, u: layer(u)), WHOLE),
    "by torch": (use_backend("torch")(lambda layer, u: layer(u)), []),
    "by the definition": (use_backend("reference")(lambda layer, u: layer(u)), []),
    "autocast": (autocast, []),
    "float64": (lambda layer, u: layer.double()(u.double()), []),
    "bfloat16": (lambda layer, u: layer.bfloat16()(u.bfloat16()), []),
    "a state in float64": (lambda layer, u: layer(u, State(*(each.double() for each in make_state()))), []),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_kernel_is_used_for_float32_that_nothing_watches(way):
    run, expected = WAYS[way]
    with seen_operations() as seen:
        y, _ = run(make_layer(), make_u())
    assert seen == expected
    assert y.shape == (4, 20, 8)


def test_weights_of_another_type_go_the_plain_way():
    layer, marked = make_layer(), type("Marked", (torch.Tensor,), {})
    layer.ffn.up._parameters["weight"] = layer.ffn.up.weight.detach().as_subclass(marked)
    with seen_operations() as seen:
        y, _ = layer(make_u())
    assert type(y) is marked
    assert seen == []


@pytest.mark.parametrize("act_fn", ["gelu", "sigmoid", "selu"])
def test_an_activation_that_the_kernel_does_not_have_goes_the_plain_way(act_fn):
    assert_is_as_its_parts(make_layer(act_fn=act_fn), make_u(), expected=[])


def test_frozen_weights_get_no_gradient_and_the_rest_the_same():
    layer, u = make_layer(), make_u()
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
            assert torch.equal(value.grad, expected[name]), name


# ---- Dropout.


def test_dropout_is_drawn_where_the_dropout_itself_is_in_training():
    layer, u = make_layer(dropout=0.5), make_u()
    for training, part_training in [(True, True), (True, False), (False, True), (False, False)]:
        layer.train(training)
        layer.ffn.dropout.train(part_training)
        before = torch.get_rng_state()
        with seen_operations() as seen:
            assert torch.equal(layer(u)[0], layer(u)[0]) != part_training
        assert seen == WHOLE * 2
        assert torch.equal(torch.get_rng_state(), before) != part_training


def test_dropout_of_the_neuron_goes_the_plain_way_in_training_only():
    layer, u = make_layer(neuron_dropout=0.5), make_u()
    with seen_operations() as seen:
        assert not torch.equal(layer.train()(u)[0], layer(u)[0])
    assert seen == []
    with seen_operations() as seen:
        layer.eval()(u)
    assert seen == WHOLE


def test_the_mean_over_many_draws_is_the_layer_without_dropout_on_both_ways():
    """For without norms z is linear in the mask."""
    layer, u = make_layer(norm_type="none", dropout=0.3), make_u(2, 20).repeat(400, 1, 1)
    with torch.no_grad():
        layer.neuron.projection.weight[:6], layer.neuron.projection.bias[:6] = 0, -1e4  # x = s
        layer.neuron.projection.weight[12:] = 0  # the gate is constant
        expected = layer.eval()(u[:2])[0]
        drawn = [layer.train()(u)[0]]
        with use_backend("torch"):
            drawn.append(layer(u)[0])
    for each in drawn:
        each = each.view(400, 2, 20, 8)
        error = (each.mean(0) - expected).abs() / (each.std(0) / 20).clamp(min=1e-6)
        assert error.max() < 5


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_layer_draws_the_same_dropout_again(use_reentrant):
    layer, u, results = make_layer(dropout=0.5), make_u().requires_grad_(), []
    with seen_operations() as seen:
        for wrapped in (False, True):
            torch.manual_seed(3)
            layer.zero_grad()
            u.grad = None
            y, _ = checkpoint(layer, u, use_reentrant=use_reentrant) if wrapped else layer(u)
            y.square().sum().backward()
            results.append([y.detach(), u.grad, *(each.grad for each in layer.parameters())])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    assert seen.count("layer") == 3  # twice with the checkpoint


def test_two_layers_do_not_draw_the_same_mask():
    layers, u = [make_layer(dropout=0.5, norm_type="none") for _ in range(2)], make_u()
    layers[1].load_state_dict(layers[0].state_dict())
    torch.manual_seed(3)
    assert not torch.equal(layers[0](u)[0], layers[1](u)[0])
