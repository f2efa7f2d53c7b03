"""Hooks on any part of a float32 model on the CPU fire with the documented shapes and act as in any torch module."""

import copy

import pytest
import torch
from model_cases import make_tokens
from torch import nn
from torch.nn import functional as F

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig, State, use_backend

# Torch's own word where the inputs of a module are integers, as tokens are.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
B, T, V, D_MODEL, D_STATE = 3, 40, 5, 12, 8  # enough rows for the fused layer, and for pairs of tokens


def make_model(**changes):
    config = {"d_model": D_MODEL, "d_state": D_STATE, "ffn_dropout": 0.0, "tie_weights": False, **changes}
    return MinMaxRNC_LM(V, MinMaxRNCLMConfig.small(**config))


def called(model):
    """The modules that are called, by name: all but lists, which never are."""
    return {name: part for name, part in model.named_modules() if not isinstance(part, nn.ModuleList)}


def tensors_in(given):
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (tuple, list)):
        for each in given:
            yield from tensors_in(each)


SHAPES = {  # the last part of a name: the shapes of what goes in and of what comes out
    "embedding": ([(B, T)], [(B, T, D_MODEL)]),
    "backbone": ([(B, T, D_MODEL)], [(B, T, D_MODEL), (2, B, D_MODEL), (2, B, D_STATE)]),
    "0": ([(B, T, D_MODEL)], [(B, T, D_MODEL), (B, D_MODEL), (B, D_STATE)]),
    "conv": ([(B, T, D_MODEL)], [(B, T, D_MODEL), (B, D_MODEL)]),
    "neuron": ([(B, T, D_MODEL)], [(B, T, D_MODEL), (B, D_STATE)]),
    "projection": ([(B, T, D_MODEL)], [(B, T, 3 * D_STATE)]),
    "cells.0": ([(B, T, 2 * D_STATE), (D_STATE,)], [(B, T, D_STATE)]),
    "output": ([(B, T, D_STATE)], [(B, T, D_MODEL)]),
    "up": ([(B, T, D_MODEL)], [(B, T, 32)]),
    "down": ([(B, T, 16)], [(B, T, D_MODEL)]),
    "head": ([(B, T, D_MODEL)], [(B, T, V)]),
    "": ([(B, T)], [(B, T, V), (2, B, D_MODEL), (2, B, D_STATE)]),
}


def shapes_of(name):
    """A norm, a dropout and a feed-forward network keep their input's shape."""
    if name.endswith("cells.0"):
        return SHAPES["cells.0"]
    last = name.rsplit(".", 1)[-1]
    return SHAPES.get("0" if last == "1" else last, ([(B, T, D_MODEL)], [(B, T, D_MODEL)]))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("way", ["forward", "loss"])
def test_every_hook_fires_once_with_the_documented_shapes(way, training):
    model, tokens = make_model().train(training), make_tokens(B, T, V)
    before, after, backward, handles = {}, {}, {}, []
    parts = called(model)

    def look(store, name, *given):
        store.setdefault(name, []).append([[tuple(a.shape) for a in tensors_in(each)] for each in given])

    for name, part in parts.items():
        handles += [
            part.register_forward_pre_hook(lambda p, i, name=name: look(before, name, i)),
            part.register_forward_hook(lambda p, i, o, name=name: look(after, name, i, o)),
            part.register_full_backward_hook(lambda p, i, o, name=name: look(backward, name, i, o)),
        ]
    if way == "forward":
        logits, state = model(tokens)
        (logits.sum() + state.x.sum()).backward()
    else:
        loss, state = model.loss(tokens, tokens)
        (loss + state.x.sum()).backward()
        del parts[""]  # it is another method that is called
    assert before.keys() == after.keys() == backward.keys() == parts.keys()
    for name in parts:
        inputs, outputs = shapes_of(name)
        assert before[name] == [[inputs]], name
        assert after[name] == [[inputs, outputs]], name
        ((of_inputs, of_outputs),) = backward[name]
        assert of_outputs[:1] == outputs[:1], name
        assert of_inputs[:1] == ([] if name in ("", "embedding") else inputs[:1]), name  # tokens have no gradient
    for handle in handles:
        handle.remove()


def scale_first(given, factor):
    """The first tensor of what a module is given or gives, times a factor."""
    if isinstance(given, torch.Tensor):
        return given * factor
    if isinstance(given, tuple) and given and isinstance(given[0], torch.Tensor):
        return (given[0] * factor, *given[1:])
    return given


HOOKS = {
    "forward": lambda part: part.register_forward_hook(lambda p, i, o: scale_first(o, 1.5)),
    "before": lambda part: part.register_forward_pre_hook(
        lambda p, i: scale_first(i, 1.5) if i[0].is_floating_point() else None
    ),
    "backward": lambda part: part.register_full_backward_hook(
        lambda p, i, o: tuple(None if each is None else each * 1.5 for each in i)
    ),
    "before backward": lambda part: part.register_full_backward_pre_hook(
        lambda p, o: tuple(None if each is None else each * 1.5 for each in o)
    ),
}


def loss_and_gradients(model, tokens, backend="auto"):
    with use_backend(backend):
        logits, state = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten()) + state.x.mean()
        found = torch.autograd.grad(loss, list(model.parameters()))
    return [logits.detach(), *state.detach(), *found]


def assert_close(actual, expected, name, tolerance):
    for one, other in zip(actual, expected, strict=True):
        allowed = tolerance * max(1.0, other.abs().max().item())
        torch.testing.assert_close(
            one.double(), other.double(), rtol=0, atol=allowed, msg=lambda text: f"{name}: {text}"
        )


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("kind", HOOKS)
def test_what_a_hook_changes_is_changed_as_in_the_plain_parts_and_in_float64(kind, training):
    model, tokens = make_model().train(training), make_tokens(B, T, V)
    plain = loss_and_gradients(model, tokens)
    for name in called(model):
        if name in ("", "embedding") and kind in ("before", "backward"):
            continue  # tokens are no floating-point numbers
        wide = copy.deepcopy(model).double()
        handles = [HOOKS[kind](each.get_submodule(name)) for each in (model, wide)]
        found = loss_and_gradients(model, tokens)
        assert_close(found, loss_and_gradients(model, tokens, "torch"), name, 1e-5)
        assert_close(found, loss_and_gradients(wide, tokens), name, 1e-4)
        assert any(not torch.equal(one, other) for one, other in zip(found, plain, strict=True)), name
        handles[0].remove()
    assert_close(loss_and_gradients(model, tokens), plain, "without hooks", 0)


def test_a_hook_on_the_head_sees_every_way_to_the_logits():
    model, seen = make_model().eval(), []
    model.head.register_forward_hook(lambda part, given, output: seen.append(tuple(output.shape)))
    tokens = make_tokens(B, T, V)
    model(tokens)
    model.loss(tokens, tokens)
    list(model.stream(tokens, chunk_size=30))
    model.generate(tokens, 2)
    assert seen == [(B, T, V), (B, T, V), (B, 30, V), (B, 10, V), (B, 1, V), (B, 1, V)]


def test_a_hook_on_a_layer_sees_the_state_it_goes_on_from():
    model, seen = make_model().eval(), []
    model.backbone.layers[1].register_forward_pre_hook(lambda part, given: seen.append(given[1]))
    _, state = model(make_tokens(B, T, V))
    model(make_tokens(B, T, V), state)
    assert seen[0] is None
    assert isinstance(seen[1], State)
    assert torch.equal(seen[1].x, state.x[1])
