"""The models that pretraining knows: made from a config, written to a folder, read back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.files import read_json, write_json
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.models.checkpoint import (
    CONFIG,
    FORMAT,
    MOST_CONFIG,
    WEIGHTS,
    check_layers,
    compare_config,
    compare_shapes,
)
from latchwork.models.config import MOST_LAYERS, MOST_TOKENS
from latchwork.tensor_files import read_shapes, read_tensors, write_tensors
from latchwork.training.config import ModelConfig

BASELINE = "latchwork-baseline"  # the format of their config.json
NEEDED = ("d_model", "n_layers", "d_state")  # of ours; the rest has defaults
MOST_WIDTH = 1 << 18  # of a baseline


def make_model(config: ModelConfig, vocabulary: int) -> nn.Module:
    """The model with fresh weights from torch's generator: tokens in; logits and state out."""
    if config.kind == "minmax":
        return MinMaxRNC_LM(vocabulary, minmax_config(config.options))
    from latchwork.baselines.mamba import Mamba
    from latchwork.baselines.recurrent import Recurrent
    from latchwork.baselines.transformer import Transformer

    makers: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
        "transformer": (Transformer, ("n_layers", "width", "heads")),
        "lstm": (lambda *a, **k: Recurrent(*a, kind=nn.LSTM, **k), ("n_layers", "width")),
        "gru": (lambda *a, **k: Recurrent(*a, kind=nn.GRU, **k), ("n_layers", "width")),
        "mamba": (Mamba, ("n_layers", "width")),
    }
    make, needed = makers[config.kind]
    optional = ("positions",) if config.kind == "transformer" else ()
    if not set(needed) <= set(config.options) <= {*needed, *optional}:
        may = f", and may be {', '.join(optional)}" if optional else ""
        raise ValueError(f"model.options of {config.kind} must be {', '.join(needed)}{may}; got {dict(config.options)}")
    for name, value in config.options.items():
        most = MOST_LAYERS if name == "n_layers" else MOST_WIDTH
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"model.options: {name} must be an integer from 1 to {most:,}; got {value!r:.80}")
    return make(vocabulary, **config.options)


def minmax_config(options: Mapping[str, Any]) -> MinMaxRNCLMConfig:
    """The configuration of ours from the fields of both its parts, side by side."""
    if missing := [name for name in NEEDED if name not in options]:
        raise ValueError(f"model.options of minmax must have {', '.join(NEEDED)}; it lacks {', '.join(missing)}")
    return MinMaxRNCLMConfig.small(**options)


def parameter_count(config: ModelConfig, vocabulary: int) -> int:
    """Trainable parameters, counted without making them."""
    with torch.device("meta"):
        return sum(each.numel() for each in make_model(config, vocabulary).parameters() if each.requires_grad)


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, one that two modules share only once."""
    state = model.state_dict()
    names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    return {name: value for name, value in state.items() if name in names}


def save_model(
    folder: str | os.PathLike[str], config: ModelConfig, vocabulary: int, tensors: Mapping[str, Tensor]
) -> None:
    """Write config.json and model.safetensors: for ours as its own `save` does, for a baseline likewise."""
    folder = Path(folder)
    model = make_model(config, vocabulary)
    load_tensors(model, tensors)
    if isinstance(model, MinMaxRNC_LM):
        model.save(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    values = {"format": BASELINE, "vocabulary": vocabulary, "kind": config.kind, "options": dict(config.options)}
    write_tensors(folder / WEIGHTS, tensors, {"config": json.dumps(values)})
    write_json(folder / CONFIG, values)


def load_model(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> nn.Module:
    """The model of a folder, ours or a baseline, in eval mode."""
    folder = Path(folder)
    path, weights = folder / CONFIG, folder / WEIGHTS
    values = read_json(path, MOST_CONFIG)
    if values is None or values.get("format") not in (FORMAT, BASELINE):
        raise ValueError(f"{folder} must hold a model: a {CONFIG} of latchwork and {WEIGHTS}")
    if values["format"] == FORMAT:
        return MinMaxRNC_LM.load(folder, device)
    shapes, _ = read_shapes(weights)
    try:
        config, vocabulary = ModelConfig(kind=values["kind"], options=values["options"]), values["vocabulary"]
        if type(vocabulary) is not int or not 1 <= vocabulary <= MOST_TOKENS:
            raise ValueError(f"vocabulary must be an integer from 1 to {MOST_TOKENS:,}; got {vocabulary!r:.80}")
        check_layers(config.options.get("n_layers", 0), shapes, weights)
        with torch.device("meta"):
            expected = own_tensors(make_model(config, vocabulary))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the configuration of a baseline: {error}") from error
    compare_shapes(expected, shapes, weights)
    tensors, metadata = read_tensors(weights, device)
    compare_config(metadata, values, path)
    model = make_model(config, vocabulary).to(device)
    load_tensors(model, tensors)
    return model.eval()


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a model its `own_tensors`. What does not fit is an error; what two modules share stays shared."""
    expected = own_tensors(model)
    if differ := sorted(set(expected) ^ set(tensors)):
        raise ValueError(f"the weights are of another model: they differ in {', '.join(differ[:3])}")
    for name, value in tensors.items():
        if value.shape != expected[name].shape:
            raise ValueError(f"{name} must be {tuple(expected[name].shape)}; got {tuple(value.shape)}")
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            value.copy_(tensors[name])
