"""A network with banks of latches as one without: every latch gets the weights that it shared with others."""

from __future__ import annotations

from dataclasses import replace

import torch

from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import MinMaxNeuron


@torch.no_grad()
def expand_bank(model: MinMaxRNC_LM) -> MinMaxRNC_LM:
    """The same function, but for rounding, with bank 1 and as many state scalars: the paper's own model.

    It has more parameters, and is what `prune_states` takes. A state of one is a state of the other. Without a bank the
    copy is equal.
    """
    config = replace(model.config, backbone=replace(model.config.backbone, bank=1))
    plain = MinMaxRNC_LM(model.vocab_size, config).to(model.embedding.weight)
    own = {name: value for name, value in model.state_dict().items() if name in plain.state_dict()}
    for number, layer in enumerate(model.backbone.layers):
        assert isinstance(layer, MinMaxLayer)
        for name, value in _expand(layer.neuron).items():
            own[f"backbone.layers.{number}.neuron.{name}"] = value
    plain.load_state_dict(own)
    return plain.train(model.training)


def _expand(neuron: MinMaxNeuron) -> dict[str, torch.Tensor]:
    """The weights that differ without a bank."""
    if neuron.bank == 1:
        return {}
    K, pairs = neuron.bank, neuron.widths[0]
    shift_r, shift_s, weight = neuron.latches()

    def of_pairs(a: torch.Tensor) -> torch.Tensor:  # the first `pairs` rows once for each latch, the others as they are
        return torch.cat((a[:pairs].repeat(K, *[1] * (a.dim() - 1)), a[pairs:]))

    rows = neuron.projection.weight, neuron.projection.bias
    gates = neuron.d_read if neuron.output_gate else 0
    sizes = [pairs, pairs, sum(neuron.widths) - 2 * pairs - gates, gates]
    expanded = []
    for each in rows:
        r, s, groups, gate = each.split_with_sizes(sizes)
        expanded.append([of_pairs(r), of_pairs(s), groups, of_pairs(gate)])
    expanded[1][0], expanded[1][1] = expanded[1][0] + shift_r, expanded[1][1] + shift_s
    output = of_pairs(neuron.output.weight.T)
    output[: len(weight)] *= weight.unsqueeze(1)
    return {
        "projection.weight": torch.cat(expanded[0]),
        "projection.bias": torch.cat(expanded[1]),
        "output.weight": output.T.contiguous(),
    }
