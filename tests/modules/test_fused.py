"""The kernel's way through a layer equals the plain one, and is not taken where the two would differ."""

import copy
import itertools
from functools import partial

import pytest
import torch
from module_definitions import make_reset, randomise_
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from latchwork import MinMaxLayer, MinMaxNeuron, MinMaxRNC, MinMaxRNCConfig, State
from latchwork.modules import BasicConv, FeedForward, GatedConv, GatedFeedForward, fused
from latchwork.modules.linear import Linear
from latchwork.ops import drive

CONVOLUTIONS = [BasicConv, GatedConv]
NETWORKS = [FeedForward, GatedFeedForward]
NORMS = ["layernorm", "rmsnorm", "none"]


@pytest.fixture(autouse=True)
def _one_thread(_settings):
    """Threads that wait for one another on a busy machine take longer than these small cases."""
    torch.set_num_threads(1)


@pytest.fixture
def calls(monkeypatch):
    """The names of the kernel's two halves, in the order in which they are called."""
    made = []
    for module, name in ((drive, "drive"), (fused, "respond")):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, f=original, n=name: made.append(n) or f(*a))
    return made


def make_layer(d=8, D=6, norm="layernorm", conv=BasicConv, ffn=GatedFeedForward, act_fn="relu", dropout=0.0, **options):
    ffn = ffn(d, act_fn=act_fn, dropout=dropout)
    layer = randomise_(MinMaxLayer(conv=conv(d), ffn=ffn, neuron=MinMaxNeuron(d, D, **options), norm_type=norm))
    with torch.no_grad():
        for value in layer.parameters():
            value.mul_(1.0 if value.dim() == 1 else 2 / value.shape[1] ** 0.5)  # values stay near 1
    return layer


def make_backbone(**changes):
    config = {"d_model": 8, "n_layers": 3, "d_state": 6, "ffn_dropout": 0.0, **changes}
    backbone = MinMaxRNC(MinMaxRNCConfig(**config))
    with torch.no_grad():
        for value in backbone.parameters():
            value.add_(torch.randn(value.shape) * 0.2)
    return backbone


def make_u(B=4, T=20, d=8, **options):
    return torch.randn(B, T, d, **options)


def plainly(monkeypatch, function, *arguments, **more):
    """What function gives while no layer is narrow enough for the kernel."""
    with monkeypatch.context() as patch:
        patch.setattr(fused, "WIDEST", 0)
        return function(*arguments, **more)


def results_and_gradients(module, u, state=None, reset=None):
    leaves = [each.detach().clone().requires_grad_() for each in (u, *(() if state is None else state))]
    y, after = module(leaves[0], None if state is None else State(*leaves[1:]), reset=reset)
    draw = torch.Generator().manual_seed(0)
    loss = sum((each * torch.randn(each.shape, generator=draw)).sum() for each in (y, *after))
    found = torch.autograd.grad(loss, [*leaves, *module.parameters()], allow_unused=True, materialize_grads=True)
    return [each.detach() for each in (y, *after, *found)]


def assert_close(actual, expected, tolerance=3e-5):
    for one, other in zip(actual, expected, strict=True):
        scale = max(1.0, other.abs().max().item() if other.numel() else 1.0)
        torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=tolerance)


def assert_both_ways_agree(monkeypatch, module, u, state=None, reset=None):
    """First without gradients: where the kernel is used wrongly, its backward might end the process."""
    with torch.no_grad():
        (y, after), (expected, other) = (
            run(module, u, state, reset=reset) for run in (lambda f, *a, **k: f(*a, **k), partial(plainly, monkeypatch))
        )
    assert_close([y, *after], [expected, *other])
    actual = results_and_gradients(module, u, state, reset)
    assert_close(actual, plainly(monkeypatch, results_and_gradients, module, u, state, reset))


def layer_state(B=4, d=8, D=6):
    return State(torch.randn(B, d), torch.randn(B, D))


# ---- Where the kernel is used, it gives what the parts give.


@pytest.mark.parametrize(
    ("norm", "conv", "ffn", "act_fn"), list(itertools.product(NORMS, CONVOLUTIONS, NETWORKS, ["relu", "relu^2"]))
)
def test_a_layer_equals_its_plain_self(norm, conv, ffn, act_fn, calls, monkeypatch):
    layer = make_layer(norm=norm, conv=conv, ffn=ffn, act_fn=act_fn, train_init=True)
    for state, reset in [(None, "never"), (layer_state(), "random")]:
        calls.clear()
        assert_both_ways_agree(monkeypatch, layer, make_u(), state, make_reset(reset, 4, 20))
        assert calls == ["drive", "respond"] * 2  # without gradients and with them


@pytest.mark.parametrize(
    "changes",
    [{"output_gate": False}, {"degree": 2}, {"levels": 5}, {"train_init": True}, {"blur": 0.5}, {"bank": 3}],
    ids=str,
)
def test_a_layer_with_other_options_equals_its_plain_self(changes, calls, monkeypatch):
    layer = make_layer(**changes)
    assert_both_ways_agree(monkeypatch, layer, make_u(), layer_state(), make_reset("random", 4, 20))
    assert "drive" in calls
    assert ("respond" in calls) == (not {"degree", "levels"} & set(changes))


@pytest.mark.parametrize("backend", ["torch", "reference", "cpu"])
def test_the_backend_that_a_neuron_asks_for_is_used(backend, calls, monkeypatch):
    layer = make_layer()
    layer.neuron.backend = backend
    assert_both_ways_agree(monkeypatch, layer, make_u(), layer_state())
    assert ("respond" in calls) == (backend == "cpu")


@pytest.mark.parametrize("conv_type", ["basic", "gated"])
@pytest.mark.parametrize("ffn_type", ["basic", "gated"])
@pytest.mark.parametrize("norm", NORMS)
def test_a_cascade_equals_its_plain_self(norm, ffn_type, conv_type, calls, monkeypatch):
    backbone = make_backbone(norm=norm, ffn_type=ffn_type, conv_type=conv_type, use_postlayers_ffn=True)
    state = State(torch.randn(3, 4, 8), torch.randn(3, 4, 6))
    assert_both_ways_agree(monkeypatch, backbone, make_u(), state, make_reset("random", 4, 20))
    assert calls == ["drive", "respond"] * 3 * 2  # without gradients and with them


def test_in_pieces_of_any_size_a_cascade_equals_its_plain_self(calls, monkeypatch):
    backbone, u = make_backbone(), make_u(4, 50)
    with torch.no_grad():
        expected = plainly(monkeypatch, backbone, u)
        for size in (7, 8, 9, 33):
            y, state = backbone(u, chunk_size=size)
            assert_close([y, *state], [expected[0], *expected[1]])
    assert calls


@pytest.mark.parametrize("norm", NORMS)
def test_the_epsilon_of_the_norms_is_the_layers(norm, monkeypatch):
    layer = make_layer(norm=norm)
    for epsilon in (None, 1e-5, 1.0) if norm == "rmsnorm" else (1e-5, 1.0):
        for part in (layer.norm_conv, layer.norm_ffn, layer.norm_neuron):
            part.eps = epsilon
        for scale in (1e-3, 1.0):
            with torch.no_grad():
                u = make_u() * scale
                assert_close(layer(u)[:1], plainly(monkeypatch, layer, u)[:1])


@pytest.mark.parametrize(
    ("B", "T", "d", "expected"),
    [
        (1, 32, 8, ["drive", "respond"]),
        (1, 31, 8, []),
        (32, 1, 8, ["drive"]),
        (4, 8, 256, ["drive", "respond"]),
        (4, 8, 257, []),
        (0, 40, 8, []),
        (40, 0, 8, []),
    ],
)
def test_few_rows_wide_layers_and_single_steps_go_the_plain_way(B, T, d, expected, calls):
    y, state = make_layer(d)(make_u(B, T, d))
    assert (y.shape, state.conv.shape, state.x.shape) == ((B, T, d), (B, d), (B, 6))
    assert calls == expected


# ---- Where the parts may do something else than the kernel does, they do it themselves.


def with_hook(name, register="register_forward_hook"):
    def change(layer):
        getattr(layer.get_submodule(name), register)(lambda *a: None)

    return change


def exchange(name, make):
    def change(layer):
        path, _, last = name.rpartition(".")
        setattr(layer.get_submodule(path), last, make(layer.get_submodule(name)))

    return change


class OtherLinear(nn.Linear):
    def forward(self, u):
        return super().forward(u) * 2


class OurLinear(Linear):
    def forward(self, u):
        return super().forward(u) * 2


class OtherNorm(nn.LayerNorm):
    def forward(self, u):
        return super().forward(u) * 2


class OtherLayer(MinMaxLayer):
    def drive(self, u, v, previous):
        return super().drive(u, v, previous) * 2


def replace_forward(name):
    def change(layer):
        part = layer.get_submodule(name)
        original = part.forward
        part.forward = lambda *a: original(*a) * 2

    return change


CHANGES = {  # name: what is done to a layer
    "hook": with_hook("ffn.up"),
    "hook before": with_hook("norm_ffn", "register_forward_pre_hook"),
    "backward hook": with_hook("neuron.projection", "register_full_backward_hook"),
    "backward hook before": with_hook("neuron.projection", "register_full_backward_pre_hook"),
    "hook on a dropout": with_hook("ffn.dropout"),
    "linear": exchange("ffn.up", lambda old: randomise_(OtherLinear(old.in_features, old.out_features))),
    "subclass of ours": exchange("ffn.down", lambda old: randomise_(OurLinear(old.in_features, old.out_features))),
    "torch's linear": exchange("neuron.output", lambda old: randomise_(nn.Linear(old.in_features, old.out_features))),
    "subclass of a norm": exchange("norm_neuron", lambda old: randomise_(OtherNorm(8))),
    "weight norm": lambda layer: parametrizations.weight_norm(layer.ffn.up),
    "spectral norm": lambda layer: parametrizations.spectral_norm(layer.neuron.projection.eval()),
    "no norm before conv": exchange("norm_conv", lambda old: nn.Identity()),
    "no norm before ffn": exchange("norm_ffn", lambda old: nn.Identity()),
    "other norm": exchange("norm_ffn", lambda old: nn.RMSNorm(8)),
    "other epsilon": exchange("norm_neuron", lambda old: nn.LayerNorm(8, eps=1.0)),
    "norm without weight": exchange("norm_ffn", lambda old: nn.LayerNorm(8, elementwise_affine=False)),
    "norm without bias": exchange("norm_ffn", lambda old: nn.LayerNorm(8, bias=False)),
    "no dropout": exchange("ffn.dropout", lambda old: nn.Identity()),
    "no dropout of the neuron": exchange("neuron.dropout", lambda old: nn.Identity()),
    "any feed-forward": exchange("ffn", lambda old: nn.Sequential(nn.Linear(8, 8))),
    "projection without bias": exchange("neuron.projection", lambda old: Linear(8, 18, bias=False)),
    "output without bias": exchange("neuron.output", lambda old: Linear(6, 8, bias=False)),
    "own forward": replace_forward("ffn"),
    "own drive": lambda layer: setattr(layer, "__class__", OtherLayer),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_layer_does_what_its_parts_do_and_is_not_given_to_the_kernel(name, calls, monkeypatch):
    layer = make_layer().train()
    CHANGES[name](layer)
    assert_both_ways_agree(monkeypatch, layer, make_u())
    assert calls == []


def test_a_convolution_without_a_bias_is_not_given_to_the_kernel(calls):
    layer = make_layer()
    layer.conv.bias = None
    with torch.no_grad():  # a backward by the kernel would end the process
        layer(make_u())
    assert "drive" not in calls


TOO_LARGE = {
    "norm_ffn": lambda: nn.LayerNorm(9),
    "conv": lambda: BasicConv(9),
    "ffn.up": lambda: Linear(9, 24),
    "ffn.down": lambda: Linear(13, 8),
    "neuron.projection": lambda: Linear(9, 18),
    "neuron.output": lambda: Linear(7, 8),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_parts_that_do_not_fit_each_other_are_an_error(name):
    layer = make_layer()
    exchange(name, lambda old: TOO_LARGE[name]())(layer)
    with torch.no_grad(), pytest.raises(RuntimeError):
        layer(make_u())


def test_a_hook_for_all_modules_is_called_for_every_part():
    seen = set()
    handle = nn.modules.module.register_module_forward_hook(lambda module, *a: seen.add(module))
    try:
        layer = make_layer()
        layer(make_u())
    finally:
        handle.remove()
    assert layer.ffn.up in seen


def test_a_dropout_in_eval_draws_nothing_in_a_layer_in_training():
    layer, u = make_layer(dropout=0.5).train(), make_u()
    layer.ffn.dropout.eval()
    assert torch.equal(layer(u)[0], layer(u)[0])


def test_a_dropout_in_training_is_drawn_in_a_layer_in_eval():
    layer, u = make_layer(dropout=0.5).eval(), make_u()
    layer.ffn.dropout.train()
    assert not torch.equal(layer(u)[0], layer(u)[0])


def autocast(layer, u):
    with torch.autocast("cpu", torch.bfloat16):
        return layer(u)


WAYS = {  # how a layer is run, and which halves of the kernel may be used
    "as it is": (lambda layer, u: layer(u), ["drive", "respond"]),
    "without gradients": (torch.no_grad()(lambda layer, u: layer(u)), ["drive", "respond"]),
    "in inference mode": (torch.inference_mode()(lambda layer, u: layer(u)), ["drive", "respond"]),
    "autocast": (autocast, []),
    "float64": (lambda layer, u: layer.double()(u.double()), []),
    "bfloat16": (lambda layer, u: layer.bfloat16()(u.bfloat16()), []),
    "float64 on float32": (lambda layer, u: layer(u, State(*(each.double() for each in layer_state()))), []),
    "compiled": (lambda layer, u: torch.compile(layer, backend="eager", fullgraph=True)(u), []),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_kernel_is_used_for_float32_that_nothing_watches(way, calls):
    run, expected = WAYS[way]
    y, _ = run(make_layer(), make_u())
    assert calls == expected
    assert y.shape == (4, 20, 8)


@pytest.mark.parametrize("act_fn", ["gelu", "swish", "sigmoid", "selu"])
def test_another_activation_goes_the_plain_way_before_the_recurrence(act_fn, calls):
    make_layer(act_fn=act_fn)(make_u())
    assert calls == ["respond"]


def test_dropout_of_the_neuron_goes_the_plain_way_in_training_only(calls):
    layer, u = make_layer(dropout=0.0), make_u()
    layer.neuron.dropout.p = 0.5
    layer.train()(u)
    assert calls == ["respond"]
    layer.eval()(u)
    assert calls == ["respond", "drive", "respond"]


def test_a_compiled_layer_gives_what_the_kernel_gives(calls):
    layer, u = make_layer(), make_u()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert_close(compiled(u)[:1], layer(u)[:1])


def test_weights_of_another_type_go_the_plain_way(calls):
    layer, marked = make_layer(), type("Marked", (torch.Tensor,), {})
    layer.ffn.up._parameters["weight"] = layer.ffn.up.weight.detach().as_subclass(marked)
    y, _ = layer(make_u())
    assert type(y) is marked
    assert calls == []


# ---- Dropout and randomness.


@pytest.mark.parametrize("conv", CONVOLUTIONS)
def test_in_eval_mode_there_is_no_dropout(conv, calls, monkeypatch):
    layer, u = make_layer(conv=conv, dropout=0.5).eval(), make_u()
    before = torch.get_rng_state()
    assert_close(layer(u)[:1], plainly(monkeypatch, layer, u)[:1])
    assert torch.equal(layer(u)[0], layer(u)[0])
    assert torch.equal(torch.get_rng_state(), before)
    assert "drive" in calls


def test_a_share_p_of_the_feed_forward_is_dropped_as_on_the_plain_way(calls, monkeypatch):
    """The mean over many draws is that without dropout, on both ways, for z is linear in the mask without norms."""
    layer, u = make_layer(norm="none", dropout=0.3), make_u(2, 20).repeat(400, 1, 1)
    with torch.no_grad():
        layer.neuron.projection.weight[:6], layer.neuron.projection.bias[:6] = 0, -1e4  # x = s
        layer.neuron.projection.weight[12:] = 0  # the gate is constant
        expected = layer.eval()(u[:2])[0]
        drawn = [layer.train()(u)[0], plainly(monkeypatch, layer, u)[0]]
    for each in drawn:
        each = each.view(400, 2, 20, 8)
        error = (each.mean(0) - expected).abs() / (each.std(0) / 20).clamp(min=1e-6)
        assert error.max() < 5
    assert calls


def make_gradients(module, u, seed=3):
    torch.manual_seed(seed)
    u = u.detach().requires_grad_()
    y, _ = module(u)
    return torch.autograd.grad(y.square().sum(), [u, *module.parameters()], allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_layer_draws_the_same_dropout_again(use_reentrant, calls):
    layer, u = make_layer(dropout=0.5), make_u().requires_grad_()
    results = []
    for wrapped in (False, True):
        torch.manual_seed(3)
        layer.zero_grad()
        u.grad = None
        y, _ = checkpoint(layer, u, use_reentrant=use_reentrant) if wrapped else layer(u)
        y.square().sum().backward()
        results.append([y.detach(), u.grad, *(each.grad for each in layer.parameters())])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    assert calls.count("drive") == 3  # twice with the checkpoint


def test_a_cascade_with_gradient_checkpointing_has_the_same_gradients(calls):
    backbone, u = make_backbone(ffn_dropout=0.3, prelayers_dropout=0.1).train(), make_u()
    expected = make_gradients(backbone, u)
    backbone.gradient_checkpointing = True
    for one, other in zip(make_gradients(backbone, u), expected, strict=True):
        assert torch.equal(one, other)
    assert calls


def test_training_with_dropout_is_reproducible(calls):
    start, u = make_backbone(ffn_dropout=0.3, prelayers_dropout=0.1), make_u()
    weights = []
    for seed in (1, 1, 2):
        backbone = copy.deepcopy(start).train()
        optimiser = torch.optim.SGD(backbone.parameters(), lr=0.01)
        torch.manual_seed(seed)
        for _ in range(4):
            optimiser.zero_grad()
            backbone(u)[0].square().mean().backward()
            optimiser.step()
        weights.append(torch.cat([each.detach().flatten() for each in backbone.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert calls


def test_dropout_of_two_layers_is_not_the_same_mask():
    layers, u = [make_layer(dropout=0.5, norm="none") for _ in range(2)], make_u()
    layers[1].load_state_dict(layers[0].state_dict())
    torch.manual_seed(3)
    assert not torch.equal(layers[0](u)[0], layers[1](u)[0])
