"""Ways to make of a network something else than its config makes. Each takes the network and pytest's monkeypatch.

What a tampering returns, if anything, is certified in place of the network.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from latchwork import minmax_scan
from latchwork.models.int8 import quantize_int8
from latchwork.modules import feedforward, linear
from latchwork.modules.cells import MatrixCell, ScalarCell, SelectionCell, matrix, scalar, selection
from latchwork.modules.linear import Linear
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.ops.moves import selection_scan

TAMPERINGS = {}


def tampering(function):
    TAMPERINGS[function.__name__] = function
    return function


def settings(**changes):
    """Tamperings that need no monkeypatch and return nothing, by name."""
    for name, change in changes.items():

        def tamper(model, monkeypatch, change=change):
            change(model)

        TAMPERINGS[name] = tamper


def first(model):
    return model.backbone.layers[0]


def tensors(model):
    """By short names, those that any network has."""
    layer = first(model)
    return {
        "embedding": model.embedding.weight,
        "x0": layer.neuron.x0,
        "conv": next(layer.conv.parameters()),
        "up": layer.ffn.up.weight,
        "up_bias": layer.ffn.up.bias,
        "down": layer.ffn.down.weight,
        "projection": layer.neuron.projection.weight,
        "projection_bias": layer.neuron.projection.bias,
        "output": layer.neuron.output.weight,
        "output_bias": layer.neuron.output.bias,
        "head": model.head.weight,
    }


def not_finite(name, value):
    def tamper(model, monkeypatch):
        tensors(model)[name].data.view(-1)[0] = value

    TAMPERINGS[f"{value}_in_{name}"] = tamper


for each in ("embedding", "x0", "conv", "up", "up_bias", "down", "projection", "output", "output_bias", "head"):
    not_finite(each, torch.nan)
for each in ("x0", "projection_bias", "output"):
    not_finite(each, torch.inf)
not_finite("head", -torch.inf)


# Hooks


def turn(module, inputs, output):
    """Another output, of the same shapes."""
    return (-output[0], *output[1:]) if isinstance(output, tuple) else -output


settings(
    forward_hook_on_the_ffn=lambda model: first(model).ffn.register_forward_hook(turn),
    forward_hook_on_the_head=lambda model: model.head.register_forward_hook(turn),
    forward_hook_on_the_model=lambda model: model.register_forward_hook(turn),
    forward_hook_on_the_embedding=lambda model: model.embedding.register_forward_hook(turn),
    forward_hook_on_a_layer=lambda model: first(model).register_forward_hook(turn),
    forward_hook_on_the_neuron=lambda model: first(model).neuron.register_forward_hook(turn),
    pre_hook_on_the_head=lambda model: model.head.register_forward_pre_hook(lambda module, inputs: (-inputs[0],)),
    pre_hook_with_keywords_on_a_layer=lambda model: first(model).register_forward_pre_hook(
        lambda module, inputs, given: (inputs, given), with_kwargs=True
    ),
    backward_hook_on_the_ffn=lambda model: first(model).ffn.register_full_backward_hook(lambda *_: None),
)


@tampering
def hook_on_all_modules(model, monkeypatch):
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: None)
    monkeypatch.callback(handle.remove)


@tampering
def pre_hook_on_all_modules(model, monkeypatch):
    handle = nn.modules.module.register_module_forward_pre_hook(lambda *_: None)
    monkeypatch.callback(handle.remove)


# Exchanged parts


def subclass(module, **methods):
    """Make of a module one of a class of the same name; a method gets what the class's own would return."""
    kind = type(module)
    own = {
        name: lambda self, *given, f=f, name=name: f(getattr(kind, name)(self, *given)) for name, f in methods.items()
    }
    module.__class__ = type(kind.__name__, (kind,), own)


def another_norm(norm):
    return nn.LayerNorm(8) if isinstance(norm, nn.Identity) else nn.Identity()


settings(
    bias_added_to_the_head=lambda model: setattr(
        model.head, "bias", nn.Parameter(torch.arange(model.vocab_size).float() * 100)
    ),
    ffn_of_a_subclass=lambda model: subclass(first(model).ffn, forward=torch.neg),
    model_of_a_subclass=lambda model: subclass(model),
    head_of_plain_torch=lambda model: setattr(
        model, "head", nn.Linear(model.head.in_features, model.vocab_size, bias=False)
    ),
    norm_exchanged=lambda model: setattr(
        model.backbone, "norm_postlayers", another_norm(model.backbone.norm_postlayers)
    ),
    dropout_exchanged=lambda model: setattr(first(model).neuron, "dropout", nn.Tanh()),
    layer_added=lambda model: model.backbone.layers.append(copy.deepcopy(first(model))),
    layer_taken_away=lambda model: model.backbone.layers.pop(-1),
    layers_shadowed=lambda model: vars(model.backbone).update(layers=nn.ModuleList([])),
    parameter_added=lambda model: setattr(first(model).ffn.up, "scale", nn.Parameter(torch.ones(1))),
    buffer_added=lambda model: model.register_buffer("scale", torch.ones(1)),
    module_added=lambda model: setattr(model.backbone, "more", nn.Linear(2, 2)),
    ffn_bias_taken_away=lambda model: setattr(first(model).ffn.up, "bias", None),
    compiled_in_place=lambda model: model.compile(backend="eager"),
)
TAMPERINGS["int8"] = lambda model, _: quantize_int8(model)
TAMPERINGS["compiled_by_torch"] = lambda model, _: torch.compile(model, backend="eager")
TAMPERINGS["wrapped_for_data_parallel_training"] = lambda model, _: nn.DataParallel(model)


@tampering
def layers_in_a_list(model, monkeypatch):
    layers = list(model.backbone.layers)
    del model.backbone.layers
    model.backbone.layers = layers


@tampering
def buffer_made_a_parameter(model, monkeypatch):
    neuron = first(model).neuron
    x0 = neuron.x0.detach()
    del neuron.x0
    neuron.x0 = nn.Parameter(x0)


# Methods


def patch_forward(model):
    forward = model.forward
    model.forward = lambda tokens, *given, **more: turn(None, None, forward(tokens, *given, **more))


settings(
    forward_of_the_ffn_patched=lambda model: setattr(first(model).ffn, "forward", lambda u: -u),
    forward_of_the_model_patched=patch_forward,
    logits_patched=lambda model: setattr(model, "logits", lambda y, tokens: -model.head(y)),
    start_patched=lambda model: setattr(first(model).neuron, "start", lambda: -MinMaxNeuron.start(first(model).neuron)),
    a_cell_of_a_subclass=lambda model: subclass(first(model).neuron.cells[0], start=torch.neg),
    a_cell_with_a_method_of_its_own=lambda model: setattr(first(model).neuron.cells[0], "start", torch.neg),
)


@tampering
def method_of_a_class_patched(model, monkeypatch):
    project = MinMaxNeuron.project
    monkeypatch.setattr(MinMaxNeuron, "project", lambda self, u: -project(self, u))


@tampering
def code_of_a_method_patched(model, monkeypatch):
    monkeypatch.setattr(MinMaxNeuron.project, "__code__", (lambda self, u: -self.projection(u)).__code__)


@tampering
def call_of_all_modules_patched(model, monkeypatch):
    call = nn.Module.__call__
    monkeypatch.setattr(nn.Module, "__call__", lambda self, *given, **more: call(self, *given, **more))


@tampering
def call_of_one_class_patched(model, monkeypatch):
    monkeypatch.setattr(Linear, "__call__", lambda self, x: -Linear.forward(self, x), raising=False)


@tampering
def forward_of_torch_patched(model, monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: -F.linear(x, self.weight, self.bias))


@tampering
def states_of_cells_patched(model, monkeypatch):
    for kind in (ScalarCell, MatrixCell, SelectionCell):
        states = kind.forward
        monkeypatch.setattr(kind, "forward", lambda self, *given, run=states: -run(self, *given))


@tampering
def attribute_access_patched(model, monkeypatch):
    monkeypatch.setattr(Linear, "__getattribute__", object.__getattribute__, raising=False)


# Parametrizations


class Negative(nn.Module):
    def forward(self, weight):
        return -weight


settings(
    parametrized_output=lambda model: parametrize.register_parametrization(
        first(model).neuron.output, "weight", Negative()
    ),
    parametrized_head=lambda model: parametrize.register_parametrization(model.head, "weight", Negative()),
    weight_norm=lambda model: parametrizations.weight_norm(first(model).ffn.up),
    spectral_norm=lambda model: parametrizations.spectral_norm(first(model).ffn.up),
    pruned_by_torch=lambda model: prune.l1_unstructured(first(model).neuron.output, "weight", amount=0.5),
)


# Numbers and settings of parts


def norms(model):
    return [each for each in model.modules() if isinstance(each, (nn.LayerNorm, nn.RMSNorm, nn.Identity))]


def untie(model):
    model.config = replace(model.config, tie_weights=True)
    model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())


def train(model, part):
    part.p = 0.5
    model.train()


settings(
    eps_of_a_norm=lambda model: setattr(norms(model)[0], "eps", 10.0),
    shape_of_a_norm=lambda model: setattr(norms(model)[-1], "normalized_shape", (1,)),
    activation=lambda model: setattr(first(model).ffn, "act_fn", "gelu"),
    levels=lambda model: setattr(first(model).neuron, "levels", 5),
    levels_as_a_float=lambda model: setattr(first(model).neuron, "levels", 3.0),
    output_gate=lambda model: setattr(first(model).neuron, "output_gate", True),
    degree=lambda model: setattr(first(model).neuron, "degree", 4),
    widths=lambda model: first(model).neuron.widths.append(1),
    sizes=lambda model: first(model).neuron.sizes.append(1),
    temperature=lambda model: setattr(first(model).neuron.cells[0], "temperature", float("nan")),
    max_norm=lambda model: setattr(model.embedding, "max_norm", 0.1),
    padding_idx=lambda model: setattr(model.embedding, "padding_idx", 0),
    vocab_size=lambda model: setattr(model, "vocab_size", model.vocab_size + 1),
    vocab_size_none=lambda model: setattr(model, "vocab_size", None),
    config_none=lambda model: setattr(model, "config", None),
    attribute_added=lambda model: setattr(first(model), "skip", True),
    hook_table_missing=lambda model: vars(model.head).pop("_forward_hooks"),
    a_module_missing=lambda model: model._modules.pop("head_dropout"),
    a_cell_with_other_levels=lambda model: setattr(first(model).neuron.cells[0], "levels", 7),
    config_replaced=lambda model: setattr(
        model, "config", replace(model.config, backbone=replace(model.config.backbone, levels=9))
    ),
    config_of_the_backbone_replaced=lambda model: setattr(
        model.backbone,
        "config",
        replace(model.backbone.config, use_postlayers_ffn=not model.backbone.config.use_postlayers_ffn),
    ),
    config_written_to=lambda model: object.__setattr__(model.config.backbone, "levels", 9),
    head_tied_or_untied=untie,
    training_with_dropout=lambda model: train(model, first(model).ffn.dropout),
    one_dropout_in_training=lambda model: train(model.head_dropout, model.head_dropout),
)


@tampering
def a_class_of_cells_patched(model, monkeypatch):
    kind = type(first(model).neuron.cells[0])
    start = kind.start
    monkeypatch.setattr(kind, "start", lambda self, x0: -start(self, x0))


# Tensors


def data(name, change):
    def tamper(model):
        tensor = tensors(model)[name]
        tensor.data = change(tensor.data)

    return tamper


def sparsify(model):
    output = first(model).neuron.output
    output.weight = nn.Parameter(output.weight.detach().to_sparse())


settings(
    float64_x0=data("x0", torch.Tensor.double),
    bfloat16_output=data("output", torch.Tensor.bfloat16),
    negative_view=data("output", torch._neg_view),
    expanded_view=data("output", lambda a: a[:1].expand_as(a)),
    overlapping_view=data("projection_bias", lambda a: a.as_strided(a.shape, (0,))),
    x0_of_another_shape=data("x0", lambda a: torch.cat([a, a])),
    weights_of_another_shape=data("down", lambda a: a[:, :1]),
    float64=lambda model: model.double(),
    float16=lambda model: model.half(),
    on_the_meta_device=lambda model: model.to("meta"),
    sparse_weight=sparsify,
    parameter_as_a_plain_tensor=lambda model: model.head._parameters.update(weight=model.head.weight.detach()),
)


@tampering
def tensor_of_a_subclass(model, monkeypatch):
    class Negated(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return super().__torch_function__(function, types, args, kwargs)

    neuron = first(model).neuron
    neuron._buffers["x0"] = neuron.x0.as_subclass(Negated)


# Functions that are no methods, and settings of torch: found by running the network


@tampering
def activation_function_exchanged(model, monkeypatch):
    monkeypatch.setitem(feedforward.ACTIVATIONS, "relu", lambda z: -F.relu(z))


@tampering
def recurrence_exchanged(model, monkeypatch):
    for module in (scalar, matrix, selection):
        monkeypatch.setattr(module, "minmax_scan", lambda *given, **more: -minmax_scan(*given, **more))
    monkeypatch.setattr(selection, "selection_scan", lambda *given, **more: -selection_scan(*given, **more))


@tampering
def products_off_by_a_percent(model, monkeypatch):
    monkeypatch.setattr(linear, "linear", lambda x, weight, bias=None: 1.01 * F.linear(x, weight, bias))


@tampering
def under_autocast(model, monkeypatch):
    autocast = torch.autocast("cpu", torch.bfloat16)
    autocast.__enter__()
    monkeypatch.callback(lambda: autocast.__exit__(None, None, None))


@tampering
def coarser_products(model, monkeypatch):
    torch.set_float32_matmul_precision("medium")
    monkeypatch.callback(lambda: torch.set_float32_matmul_precision("highest"))
