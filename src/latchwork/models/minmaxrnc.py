"""Weights of the paper's own package, minmaxrnc 0.3.0, in our model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from latchwork.models.config import MinMaxRNCLMConfig
from latchwork.models.language_model import MinMaxRNC_LM

# Ours to theirs, in one layer. The rows of our projection are their r, s and o_g.
_LAYER = {
    "conv.weight": "conv.conv_fn.weight",
    "conv.bias": "conv.conv_fn.bias",
    "conv.g": "conv.g",
    "ffn.up": "ffn.proj_up",
    "ffn.down": "ffn.proj_down",
    "neuron.output": "neuron.o",
    "neuron.x0": "neuron._initial_state",
}
_MODEL = {
    "embedding": "token_emb",
    "head": "lm_head",
    "backbone.norm_postlayers_ffn": "postlayers_ffn_norm",
    "backbone.norm_postlayers": "postlayers_norm",
    "backbone.postlayers_ffn.up": "postlayers_ffn.proj_up",
    "backbone.postlayers_ffn.down": "postlayers_ffn.proj_down",
}
_PROJECTION = "neuron.projection."


def from_minmaxrnc(state_dict: Mapping[str, Tensor], config: MinMaxRNCLMConfig) -> MinMaxRNC_LM:
    """The language model of minmaxrnc 0.3.0 whose `state_dict()` this is, in eval mode.

    config must describe the same model. The vocabulary size is read from the weights. In that package the fields of
    the language model's configuration always override the backbone's.
    """
    if "token_emb.weight" not in state_dict:
        raise ValueError("state_dict is not that of a minmaxrnc language model: it has no token_emb.weight")
    if config.backbone.degree != 1:
        raise ValueError(f"config.backbone.degree must be 1, as all of minmaxrnc is; got {config.backbone.degree}")
    if config.backbone.levels is not None:
        raise ValueError(f"config.backbone.levels must be None, as minmaxrnc has none; got {config.backbone.levels}")
    model = MinMaxRNC_LM(state_dict["token_emb.weight"].shape[0], config)
    used = {name for name in state_dict if name.endswith("conv._initial_state")}  # zeros, which are a constant here
    for name in used:
        if state_dict[name].count_nonzero():
            raise ValueError(f"state_dict[{name!r}] must be zero: the convolution starts from zero here")
    ours = {}
    for name, value in model.state_dict().items():
        sources = _sources(name, config.resolved_backbone.output_gate)
        if lacking := [source for source in sources if source not in state_dict]:
            raise ValueError(f"state_dict does not fit config: it lacks {lacking[0]}, which {name} is made from")
        tensor = torch.cat([state_dict[source] for source in sources])
        if tensor.shape != value.shape:
            raise ValueError(
                f"state_dict does not fit config: {' with '.join(sources)} must be {tuple(value.shape)}; "
                f"got {tuple(tensor.shape)}"
            )
        ours[name] = tensor
        used.update(sources)
    if foreign := sorted(set(state_dict) - used):
        raise ValueError(f"state_dict does not fit config: it has {', '.join(foreign[:3])}, which the model does not")
    if config.tie_weights and not torch.equal(ours["head.weight"], ours["embedding.weight"]):
        raise ValueError("config.tie_weights must be False: lm_head.weight differs from token_emb.weight")
    model.load_state_dict(ours)
    return model.eval()


def _sources(name: str, output_gate: bool) -> list[str]:
    """The names of the tensors there that make up ours."""
    for ours, theirs in _MODEL.items():
        if name.startswith(f"{ours}."):
            return [theirs + name.removeprefix(ours)]
    _, _, number, rest = name.split(".", 3)
    if rest.startswith(_PROJECTION):
        kind = rest.removeprefix(_PROJECTION)
        parts = ["r", "s", "o_g"] if output_gate else ["r", "s"]
        return [f"layers.{number}.neuron.{part}.{kind}" for part in parts]
    for ours, theirs in _LAYER.items():
        if rest.startswith(ours):
            return [f"layers.{number}.{theirs}{rest.removeprefix(ours)}"]
    return [f"layers.{number}.{rest}"]
