"""Fewer units: those that a network can do without become constants, and are taken out; or only those that follow the
answers stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from latchwork.models import MinMaxRNC_LM
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.tasks.task import IGNORE

RATIO = 1e-2  # directions of the input that vary less than the widest by this are not used: they would magnify rounding


@torch.no_grad()
def prune_states(model: MinMaxRNC_LM, tokens: Tensor, targets: Tensor) -> MinMaxRNC_LM:
    """A network with fewer units that is right wherever this one is, on these tokens and targets (B, T).

    A unit is `degree` state scalars. One after the other, those of the smallest output weights first, is fixed at the
    values it has most often (at 0 if there is an output gate); if no answer becomes wrong by that, it is taken out, and
    its share of the output goes into the bias. Layers that need fewer units than others keep some that stand still.
    What it does on other words may change: prune first, then `certify`.
    """
    config = model.config.resolved_backbone
    _check(model, tokens, targets)
    trial = _copy(model, config.d_state)
    kept = targets != IGNORE
    right = _answers(trial, tokens)[kept] == targets[kept]
    live = []
    for number, layer in enumerate(_layers(trial)):
        neuron = layer.neuron
        answers, states = _reader(trial, tokens, number)
        units = torch.arange(config.d_state).view(-1, config.degree)
        order = neuron.output.weight.norm(dim=0)[units].norm(dim=1).argsort().tolist()
        dead: list[int] = []
        for unit in order:
            scalars = units[unit]
            weight, bias = neuron.output.weight[:, scalars].clone(), neuron.output.bias.clone()
            if not config.output_gate:
                neuron.output.bias[:] = bias + weight @ states[..., scalars].flatten(0, 1).mode(0).values
            neuron.output.weight[:, scalars] = 0
            if bool((answers()[kept] == targets[kept])[right].all()):
                dead.append(unit)
            else:
                neuron.output.weight[:, scalars], neuron.output.bias[:] = weight, bias
        live.append(sorted(set(range(len(units))) - set(dead)))
    return _take(trial, live)


@torch.no_grad()
def keep_followers(
    model: MinMaxRNC_LM, tokens: Tensor, targets: Tensor, *, partly: bool = False
) -> MinMaxRNC_LM | None:
    """A network with a few units that follow the answers, targets (B, T); None if those do not tell all answers apart.

    A state scalar follows the answers if it is the same wherever, on these words, the answer is. Where every answer
    says which state a machine is in, units of such scalars have learnt to be that machine, or a part of it, and the
    others only what short words need; so they go, though the readout leans on them too, and its weight on what else
    there is in the units that stay becomes 0. It must then be trained again, and what moves the states left as it is:
    `freeze_moves`, and any training. For networks of one layer.
    partly: it is enough that some units follow, as where each is a part of the machine; None if none does.
    """
    config = model.config.resolved_backbone
    _check(model, tokens, targets)
    if config.n_layers != 1:
        raise ValueError(f"model must have one layer; got {config.n_layers}")
    kept = targets != IGNORE
    answers = torch.unique(targets[kept], return_inverse=True)[1]
    states = _states(model, tokens, 0)[kept]
    groups = answers[:, None].expand_as(states)
    lowest, highest = (
        states.new_zeros(int(answers.amax()) + 1, states.shape[1]).scatter_reduce(
            0, groups, states, how, include_self=False
        )
        for how in ("amin", "amax")
    )
    follows = (lowest == highest).all(0)
    units = (states * follows).view(len(states), -1, config.degree)
    # Each unit's own number for what follows of its state.
    numbers = torch.stack([_numbers(unit) for unit in units.unbind(1)], 1)
    live = numbers.amax(0).nonzero().flatten().tolist()
    if not live or not (partly or _is_function(numbers[:, live], answers[:, None])):
        return None
    known = numbers[:, live]
    weight = _layers(model)[0].neuron.output.weight.view(config.d_model, -1, config.degree)
    for unit in sorted(live, key=lambda unit: float(weight[:, unit].norm())):
        rest = [each for each in live if each != unit]
        if rest and _is_function(numbers[:, rest], known):
            live = rest
    smaller = _take(model, [live])
    _layers(smaller)[0].neuron.output.weight[:, ~follows.view(-1, config.degree)[live].flatten()] = 0
    return smaller


@torch.no_grad()
def graft(model: MinMaxRNC_LM, donor: MinMaxRNC_LM, tokens: Tensor) -> MinMaxRNC_LM:
    """The model with the units of another one beside its own, for networks of one layer and one shape of units.

    Their logits become linear functions of what drives the model's own units, by least squares over these tokens
    (B, T): exactly theirs where the model tells the letters apart and its convolution is nearly closed. Nothing reads
    them yet; whether they still do what they did is for `keep_followers` to say.
    """
    own, theirs = model.config.resolved_backbone, donor.config.resolved_backbone
    if own.n_layers != 1 or own.extra_units or replace(theirs, d_state=own.d_state) != own:
        raise ValueError(
            f"model and donor must have one layer and no extra units, and differ in d_state alone; got {own}, {theirs}"
        )
    result = _copy(model, own.d_state + theirs.d_state)
    new, old, other = (_layers(each)[0].neuron for each in (result, model, donor))
    first, second = torch.arange(own.d_state), torch.arange(theirs.d_state)
    for part in (new.projection.weight, new.projection.bias, new.output.weight):
        part.zero_()
    new.projection.weight[_rows(new, first)] = old.projection.weight[_rows(old, first)]
    new.projection.bias[_rows(new, first)] = old.projection.bias[_rows(old, first)]
    inputs = _inputs(model, tokens).flatten(0, 1).double()
    drives = other.project(_inputs(donor, tokens)).flatten(0, 1).double()
    inputs = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
    solution = torch.linalg.lstsq(inputs, drives, rcond=RATIO, driver="gelsd").solution
    rows, taken = _rows(new, own.d_state + second), _rows(other, second)
    new.projection.weight[rows] = solution[:-1].T[taken].to(new.projection.weight.dtype)
    new.projection.bias[rows] = solution[-1][taken].to(new.projection.bias.dtype)
    new.output.weight[:, : own.d_state], new.output.bias[:] = old.output.weight, old.output.bias
    new.x0[:] = torch.cat([old.x0, other.x0])
    return result


def freeze_moves(model: MinMaxRNC_LM) -> None:
    """Let no training change how the states of a network of one layer move: only how they are read."""
    if model.config.resolved_backbone.n_layers != 1:
        raise ValueError(f"model must have one layer; got {model.config.resolved_backbone.n_layers}")
    (layer,) = _layers(model)
    for part in (model.embedding, layer.norm_conv, layer.conv, layer.norm_ffn, layer.ffn, layer.norm_neuron):
        part.requires_grad_(False)
    layer.neuron.projection.requires_grad_(False)
    layer.neuron.x0.requires_grad_(False)


def _is_function(one: Tensor, other: Tensor) -> bool:
    """Whether equal rows of one (M, K) stand beside equal rows of other (M, L)."""
    return bool(_numbers(one).amax() == _numbers(torch.cat([one, other], 1)).amax())


def _numbers(rows: Tensor) -> Tensor:
    """Of each row (M, K) a number from 0 on, M of them; equal rows have equal ones, and others others."""
    numbers = torch.zeros(len(rows), dtype=torch.int64)
    for column in rows.unbind(1):
        own = torch.unique(column, return_inverse=True)[1]
        numbers = torch.unique(numbers * (own.amax() + 1) + own, return_inverse=True)[1]
    return numbers


def _check(model: MinMaxRNC_LM, tokens: Tensor, targets: Tensor) -> None:
    config = model.config.resolved_backbone
    if config.extra_units:
        raise ValueError(f"model must have units of one degree, and no extra units; got {config.extra_units}")
    if tokens.shape != targets.shape or tokens.dim() != 2:
        raise ValueError(
            f"tokens and targets must share one shape (B, T); got {tuple(tokens.shape)} and {tuple(targets.shape)}"
        )


def _reader(model: MinMaxRNC_LM, tokens: Tensor, number: int) -> tuple[Callable[[], Tensor], Tensor]:
    """What gives the model's answers while the readout of a layer changes, and that layer's states (B, T, d_state).

    The states of a layer do not depend on its own readout. So the answers of the last layer, if it has no output gate,
    are read from states that are computed once; otherwise the whole model is run.
    """
    states, config = _states(model, tokens, number), model.config.resolved_backbone
    if number + 1 < config.n_layers or config.output_gate:
        return lambda: _answers(model, tokens), states
    u, backbone = model.embedding(tokens), model.backbone
    for layer in _layers(model)[:number]:
        u, _ = layer(u)

    def answers() -> Tensor:
        y = u + _layers(model)[number].neuron.output(states)
        if config.use_postlayers_ffn:
            y = y + backbone.postlayers_ffn(backbone.norm_postlayers_ffn(y))
        found: Tensor = model.head(backbone.norm_postlayers(y)).argmax(-1)
        return found

    return answers, states


def _inputs(model: MinMaxRNC_LM, tokens: Tensor) -> Tensor:
    """What a network's first neuron is driven by, (B, T, d_model)."""
    return _layers(model)[0].before_neuron(model.embedding(tokens))[0]


def _states(model: MinMaxRNC_LM, tokens: Tensor, number: int) -> Tensor:
    """Every state (B, T, d_state) of a layer, which has one cell."""
    u = model.embedding(tokens)
    for layer in _layers(model)[:number]:
        u, _ = layer(u)
    layer = _layers(model)[number]
    (cell,) = layer.neuron.cells
    z = layer.drive(u)[..., : layer.neuron.widths[0]]
    states: Tensor = cell(z, layer.neuron.start().to(z.dtype))
    return states


def _take(model: MinMaxRNC_LM, live: list[list[int]]) -> MinMaxRNC_LM:
    """The model with these units of each layer, and as many that never move as make them equal in number."""
    config = model.config.resolved_backbone
    width = max(1, *(len(each) for each in live))
    smaller = _copy(model, width * config.degree)
    for old, new, units in zip(_layers(model), _layers(smaller), live, strict=True):
        others = [each for each in range(config.d_state // config.degree) if each not in units]
        some = torch.tensor(units + others[: width - len(units)])
        scalars = torch.arange(config.d_state).view(-1, config.degree)[some].flatten()
        rows = _rows(old.neuron, scalars)
        new.neuron.projection.weight[:] = old.neuron.projection.weight[rows]
        new.neuron.projection.bias[:] = old.neuron.projection.bias[rows]
        new.neuron.output.weight[:] = old.neuron.output.weight[:, scalars]
        new.neuron.output.bias[:] = old.neuron.output.bias
        new.neuron.x0[:] = old.neuron.x0[scalars]
        _hold(new.neuron, torch.arange(len(units) * config.degree, width * config.degree))
    return smaller.eval()


def _hold(neuron: MinMaxNeuron, scalars: Tensor) -> None:
    """Let these scalars keep what they start with: each is capped by 1 from itself, by -1 from others, and s is -1.

    As logits of a choice the same numbers choose the scalar itself.
    """
    (cell,) = neuron.cells
    degree = getattr(cell, "degree", 1)
    rows = _rows(neuron, scalars)
    neuron.projection.weight[rows] = 0
    neuron.projection.bias[rows] = -1
    neuron.projection.bias[scalars * degree + scalars % degree] = 1
    neuron.output.weight[:, scalars] = 0


def _rows(neuron: MinMaxNeuron, scalars: Tensor) -> Tensor:
    """The rows of the projection that drive these scalars: `degree` for r of each, then one for s and for the gate."""
    (cell,) = neuron.cells
    degree = getattr(cell, "degree", 1)
    parts = [(scalars[:, None] * degree + torch.arange(degree)).flatten()]
    for first in range(neuron.d_state * degree, sum(neuron.widths), neuron.d_state):
        parts.append(first + scalars)
    return torch.cat(parts)


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
