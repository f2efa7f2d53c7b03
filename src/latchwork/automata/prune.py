"""Fewer state scalars: those that a network can do without become constants, and are taken out."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from latchwork.models import MinMaxRNC_LM
from latchwork.modules.layer import MinMaxLayer
from latchwork.tasks.task import IGNORE


@torch.no_grad()
def prune_states(model: MinMaxRNC_LM, tokens: Tensor, targets: Tensor) -> MinMaxRNC_LM:
    """A network with fewer state scalars that is right wherever this one is, on these tokens and targets (B, T).

    One scalar after the other, those of the smallest output weights first, is fixed at the value it has most often (at
    0 if there is an output gate); if no answer becomes wrong by that, it is taken out, and its share of the output goes
    into the bias. Layers that need fewer scalars than others keep some that do nothing. What it does on other words may
    change: prune first, then `certify`. Degree one alone.
    """
    config = model.config.resolved_backbone
    if config.degree > 1 or config.groups:
        raise ValueError(f"model must have degree one and no groups; got {config.degree} and {config.groups}")
    if tokens.shape != targets.shape or tokens.dim() != 2:
        raise ValueError(
            f"tokens and targets must share one shape (B, T); got {tuple(tokens.shape)} and {tuple(targets.shape)}"
        )
    trial = _copy(model, config.d_state)
    kept = targets != IGNORE
    right = _answers(trial, tokens)[kept] == targets[kept]
    live = []
    for number, layer in enumerate(_layers(trial)):
        neuron = layer.neuron
        order = neuron.output.weight.norm(dim=0).argsort().tolist()
        dead: list[int] = []
        for scalar in order:
            weight, bias = neuron.output.weight[:, scalar].clone(), neuron.output.bias.clone()
            if not config.output_gate:
                neuron.output.bias[:] = bias + weight * _usual(trial, tokens, number, scalar)
            neuron.output.weight[:, scalar] = 0
            if bool((_answers(trial, tokens)[kept] == targets[kept])[right].all()):
                dead.append(scalar)
            else:
                neuron.output.weight[:, scalar], neuron.output.bias[:] = weight, bias
        live.append(sorted(set(range(config.d_state)) - set(dead)))
    return _take(trial, live)


def _usual(model: MinMaxRNC_LM, tokens: Tensor, number: int, scalar: int) -> Tensor:
    """The value that a state scalar has most often."""
    u = model.embedding(tokens)
    for depth, layer in enumerate(_layers(model)):
        v = layer.norm_conv(u)
        before = torch.cat((torch.zeros_like(v[:, :1]), v[:, :-1]), 1)
        if depth == number:
            return layer.neuron.states(layer.drive(u, v, before))[..., scalar].flatten().mode().values
        u, _ = layer(u)
    raise AssertionError("no such layer")


def _take(model: MinMaxRNC_LM, live: list[list[int]]) -> MinMaxRNC_LM:
    """The model with these scalars of each layer, and as many that do nothing as make them equal in number."""
    d_state = model.config.resolved_backbone.d_state
    width = max(1, *(len(each) for each in live))
    smaller = _copy(model, width)
    for old, new, scalars in zip(_layers(model), _layers(smaller), live, strict=True):
        some = scalars + [each for each in range(d_state) if each not in scalars][: width - len(scalars)]
        parts = range(len(old.neuron.widths))
        rows = torch.tensor([part * d_state + each for part in parts for each in some])
        new.neuron.projection.weight[:] = old.neuron.projection.weight[rows]
        new.neuron.projection.bias[:] = old.neuron.projection.bias[rows]
        new.neuron.output.weight[:] = old.neuron.output.weight[:, some]
        new.neuron.output.bias[:] = old.neuron.output.bias
        new.neuron.x0[:] = old.neuron.x0[some]
    return smaller.eval()


def _copy(model: MinMaxRNC_LM, d_state: int) -> MinMaxRNC_LM:
    """A model of that many state scalars with the weights of this one, wherever their shapes are equal."""
    backbone = replace(model.config.resolved_backbone, d_state=d_state)
    other = MinMaxRNC_LM(model.vocab_size, replace(model.config, backbone=backbone))
    other.to(next(model.parameters()).dtype)
    own, theirs = other.state_dict(), model.state_dict()
    other.load_state_dict({name: theirs[name] if theirs[name].shape == own[name].shape else own[name] for name in own})
    return other.eval()


def _layers(model: MinMaxRNC_LM) -> list[MinMaxLayer]:
    return list(model.backbone.layers)  # type: ignore[arg-type]


def _answers(model: MinMaxRNC_LM, tokens: Tensor) -> Tensor:
    answers: Tensor = model(tokens)[0].argmax(-1)
    return answers
