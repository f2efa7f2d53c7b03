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
from latchwork.models import MinMaxRNC_LM
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


def hook(name, find):
    TAMPERINGS[f"forward_hook_on_{name}"] = lambda model, _: find(model).register_forward_hook(turn) and None


hook("the_ffn", lambda model: first(model).ffn)
hook("the_head", lambda model: model.head)
hook("the_model", lambda model: model)
hook("the_embedding", lambda model: model.embedding)
hook("a_layer", first)
hook("the_neuron", lambda model: first(model).neuron)


@tampering
def pre_hook_on_the_head(model, monkeypatch):
    model.head.register_forward_pre_hook(lambda module, inputs: (-inputs[0],))


@tampering
def pre_hook_with_keywords_on_a_layer(model, monkeypatch):
    first(model).register_forward_pre_hook(lambda module, inputs, given: (inputs, given), with_kwargs=True)


@tampering
def backward_hook_on_the_ffn(model, monkeypatch):
    first(model).ffn.register_full_backward_hook(lambda *_: None)


@tampering
def hook_on_all_modules(model, monkeypatch):
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: None)
    monkeypatch.callback(handle.remove)


@tampering
def pre_hook_on_all_modules(model, monkeypatch):
    handle = nn.modules.module.register_module_forward_pre_hook(lambda *_: None)
    monkeypatch.callback(handle.remove)


# Exchanged parts


@tampering
def bias_added_to_the_head(model, monkeypatch):
    model.head.bias = nn.Parameter(torch.arange(model.vocab_size).float() * 100)


@tampering
def ffn_of_a_subclass(model, monkeypatch):
    kind = type(first(model).ffn)
    first(model).ffn.__class__ = type(kind.__name__, (kind,), {"forward": lambda self, u: -kind.forward(self, u)})


@tampering
def model_of_a_subclass(model, monkeypatch):
    model.__class__ = type("MinMaxRNC_LM", (MinMaxRNC_LM,), {})


@tampering
def head_of_plain_torch(model, monkeypatch):
    model.head = nn.Linear(model.head.in_features, model.vocab_size, bias=False)


@tampering
def norm_exchanged(model, monkeypatch):
    norm = model.backbone.norm_postlayers
    model.backbone.norm_postlayers = nn.LayerNorm(8) if isinstance(norm, nn.Identity) else nn.Identity()


@tampering
def dropout_exchanged(model, monkeypatch):
    first(model).neuron.dropout = nn.Tanh()


@tampering
def layer_added(model, monkeypatch):
    model.backbone.layers.append(copy.deepcopy(first(model)))


@tampering
def layer_taken_away(model, monkeypatch):
    del model.backbone.layers[-1]


@tampering
def layers_in_a_list(model, monkeypatch):
    layers = list(model.backbone.layers)
    del model.backbone.layers
    model.backbone.layers = layers


@tampering
def layers_shadowed(model, monkeypatch):
    vars(model.backbone)["layers"] = nn.ModuleList([])


@tampering
def parameter_added(model, monkeypatch):
    first(model).ffn.up.scale = nn.Parameter(torch.ones(1))


@tampering
def buffer_added(model, monkeypatch):
    model.register_buffer("scale", torch.ones(1))


@tampering
def module_added(model, monkeypatch):
    model.backbone.more = nn.Linear(2, 2)


@tampering
def buffer_made_a_parameter(model, monkeypatch):
    neuron = first(model).neuron
    x0 = neuron.x0.detach()
    del neuron.x0
    neuron.x0 = nn.Parameter(x0)


@tampering
def ffn_bias_taken_away(model, monkeypatch):
    first(model).ffn.up.bias = None


@tampering
def int8(model, monkeypatch):
    return quantize_int8(model)


@tampering
def compiled_by_torch(model, monkeypatch):
    return torch.compile(model, backend="eager")


@tampering
def compiled_in_place(model, monkeypatch):
    model.compile(backend="eager")


@tampering
def wrapped_for_data_parallel_training(model, monkeypatch):
    return nn.DataParallel(model)


# Methods


@tampering
def forward_of_the_ffn_patched(model, monkeypatch):
    first(model).ffn.forward = lambda u: -u


@tampering
def forward_of_the_model_patched(model, monkeypatch):
    forward = model.forward
    model.forward = lambda tokens, *given, **more: turn(None, None, forward(tokens, *given, **more))


@tampering
def logits_patched(model, monkeypatch):
    model.logits = lambda y, tokens: -model.head(y)


@tampering
def start_patched(model, monkeypatch):
    neuron = first(model).neuron
    neuron.start = lambda: -MinMaxNeuron.start(neuron)


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


@tampering
def parametrized_output(model, monkeypatch):
    parametrize.register_parametrization(first(model).neuron.output, "weight", Negative())


@tampering
def parametrized_head(model, monkeypatch):
    parametrize.register_parametrization(model.head, "weight", Negative())


@tampering
def weight_norm(model, monkeypatch):
    parametrizations.weight_norm(first(model).ffn.up)


@tampering
def spectral_norm(model, monkeypatch):
    parametrizations.spectral_norm(first(model).ffn.up)


@tampering
def pruned_by_torch(model, monkeypatch):
    prune.l1_unstructured(first(model).neuron.output, "weight", amount=0.5)


# Numbers and settings of parts


def setting(name, change):
    def tamper(model, monkeypatch):
        change(model)

    TAMPERINGS[name] = tamper


def norms(model):
    return [each for each in model.modules() if isinstance(each, (nn.LayerNorm, nn.RMSNorm, nn.Identity))]


setting("eps_of_a_norm", lambda model: setattr(norms(model)[0], "eps", 10.0))
setting("shape_of_a_norm", lambda model: setattr(norms(model)[-1], "normalized_shape", (1,)))
setting("activation", lambda model: setattr(first(model).ffn, "act_fn", "gelu"))
setting("levels", lambda model: setattr(first(model).neuron, "levels", 5))
setting("levels_as_a_float", lambda model: setattr(first(model).neuron, "levels", 3.0))
setting("output_gate", lambda model: setattr(first(model).neuron, "output_gate", True))
setting("degree", lambda model: setattr(first(model).neuron, "degree", 4))
setting("widths", lambda model: first(model).neuron.widths.append(1))
setting("sizes", lambda model: first(model).neuron.sizes.append(1))
setting("temperature", lambda model: setattr(first(model).neuron.cells[0], "temperature", float("nan")))
setting("max_norm", lambda model: setattr(model.embedding, "max_norm", 0.1))
setting("padding_idx", lambda model: setattr(model.embedding, "padding_idx", 0))
setting("vocab_size", lambda model: setattr(model, "vocab_size", model.vocab_size + 1))
setting("vocab_size_none", lambda model: setattr(model, "vocab_size", None))
setting("config_none", lambda model: setattr(model, "config", None))
setting("attribute_added", lambda model: setattr(first(model), "skip", True))
setting("hook_table_missing", lambda model: vars(model.head).pop("_forward_hooks"))
setting("a_module_missing", lambda model: model._modules.pop("head_dropout"))


@tampering
def a_cell_with_other_levels(model, monkeypatch):
    first(model).neuron.cells[0].levels = 7


@tampering
def a_cell_of_a_subclass(model, monkeypatch):
    cells = first(model).neuron.cells
    kind = type(cells[0])
    cells[0].__class__ = type(kind.__name__, (kind,), {"start": lambda self, x0: -kind.start(self, x0)})


@tampering
def a_cell_with_a_method_of_its_own(model, monkeypatch):
    first(model).neuron.cells[0].start = lambda x0: -x0


@tampering
def a_class_of_cells_patched(model, monkeypatch):
    kind = type(first(model).neuron.cells[0])
    start = kind.start
    monkeypatch.setattr(kind, "start", lambda self, x0: -start(self, x0))


@tampering
def config_replaced(model, monkeypatch):
    model.config = replace(model.config, backbone=replace(model.config.backbone, levels=9))


@tampering
def config_of_the_backbone_replaced(model, monkeypatch):
    config = model.backbone.config
    model.backbone.config = replace(config, use_postlayers_ffn=not config.use_postlayers_ffn)


@tampering
def config_written_to(model, monkeypatch):
    object.__setattr__(model.config.backbone, "levels", 9)


@tampering
def head_tied_or_untied(model, monkeypatch):
    model.config = replace(model.config, tie_weights=True)
    model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())


@tampering
def training_with_dropout(model, monkeypatch):
    first(model).ffn.dropout.p = 0.5
    model.train()


@tampering
def one_dropout_in_training(model, monkeypatch):
    model.head_dropout.p = 0.5
    model.head_dropout.train()


# Tensors


def data(name, change):
    def tamper(model, monkeypatch):
        tensor = tensors(model)[name]
        tensor.data = change(tensor.data)

    return tamper


TAMPERINGS["float64_x0"] = data("x0", torch.Tensor.double)
TAMPERINGS["bfloat16_output"] = data("output", torch.Tensor.bfloat16)
TAMPERINGS["negative_view"] = data("output", torch._neg_view)
TAMPERINGS["expanded_view"] = data("output", lambda a: a[:1].expand_as(a))
TAMPERINGS["overlapping_view"] = data("projection_bias", lambda a: a.as_strided(a.shape, (0,)))
TAMPERINGS["x0_of_another_shape"] = data("x0", lambda a: torch.cat([a, a]))
TAMPERINGS["weights_of_another_shape"] = data("down", lambda a: a[:, :1])
setting("float64", lambda model: model.double())
setting("float16", lambda model: model.half())
setting("on_the_meta_device", lambda model: model.to("meta"))


@tampering
def sparse_weight(model, monkeypatch):
    output = first(model).neuron.output
    output.weight = nn.Parameter(output.weight.detach().to_sparse())


@tampering
def tensor_of_a_subclass(model, monkeypatch):
    class Negated(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return super().__torch_function__(function, types, args, kwargs)

    neuron = first(model).neuron
    neuron._buffers["x0"] = neuron.x0.as_subclass(Negated)


@tampering
def parameter_as_a_plain_tensor(model, monkeypatch):
    model.head._parameters["weight"] = model.head.weight.detach()


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
