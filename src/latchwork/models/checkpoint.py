"""A model on disk: a folder with config.json and model.safetensors. No pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from latchwork.files import parse_json, read_json, write_text
from latchwork.models.backbone import cells_of
from latchwork.models.config import MOST_TOKENS, MinMaxRNCLMConfig
from latchwork.tensor_files import read_shapes, read_tensors, write_tensors

if TYPE_CHECKING:
    from latchwork.models.language_model import MinMaxRNC_LM

FORMAT = "latchwork"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
MOST_CONFIG = 1 << 20  # bytes of a config.json


def save(model: MinMaxRNC_LM, folder: str | os.PathLike[str]) -> None:
    """Write config.json and model.safetensors into folder, which is made if missing.

    Each file is written under a temporary name and renamed. A weight that two modules share is written once. The
    weights carry their SHA-256 and a copy of the configuration, with which `load` compares.
    """
    if any(not value.is_floating_point() for value in model.state_dict().values()):
        raise ValueError("model must have floating-point weights: save the model that an int8 one is made from")
    cells = str(cells_of(model.config.resolved_backbone))
    for neuron in (layer.neuron for layer in model.backbone.layers):
        if (found := str(list(neuron.cells))) != cells:  # type: ignore[union-attr,arg-type]
            raise ValueError(f"model must have the cells that its config names, {cells}; got {found}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    values = {"format": FORMAT, "vocab_size": model.vocab_size, "model": model.config.to_dict()}
    write_tensors(folder / WEIGHTS, _own_tensors(model), {"config": json.dumps(values)})
    write_text(folder / CONFIG, json.dumps(values, indent=2) + "\n")


def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> MinMaxRNC_LM:
    """The model that `save` wrote, in eval mode, its weights in the dtype they were saved in.

    Names and shapes are compared before a weight is read. Weights, or a configuration, that have changed since they
    were saved are an error.
    """
    from latchwork.models.language_model import MinMaxRNC_LM

    path, weights = Path(folder) / CONFIG, Path(folder) / WEIGHTS
    vocab_size, config = read_config(path)
    shapes, _ = read_shapes(weights)
    check_layers(config.backbone.n_layers, shapes, weights)
    with torch.device("meta"):
        model = MinMaxRNC_LM(vocab_size, config)
    compare_shapes(_own_tensors(model), shapes, weights)
    tensors, metadata = read_tensors(weights, device)
    compare_config(metadata, read_json(path, MOST_CONFIG), path)
    for name, value in tensors.items():
        if not value.is_floating_point():
            raise ValueError(f"{weights}: {name} must be a floating-point tensor; got {value.dtype}")
    model.load_state_dict(tensors, strict=False, assign=True)
    if config.tie_weights:
        model.head.weight = model.embedding.weight
    return model.eval()


def compare_config(metadata: Mapping[str, str], values: object, path: Path) -> None:
    """Raise ValueError if the configuration at path is not the one that the weights were saved with, if they say so."""
    if "config" in metadata and parse_json(metadata["config"], path.with_name(WEIGHTS)) != values:
        raise ValueError(f"{path} has changed since {WEIGHTS} was saved with it")


def check_layers(n_layers: int, shapes: Sized, weights: Path) -> None:
    """Each layer has a tensor at least: more layers than tensors are an error before any is made."""
    if n_layers > len(shapes):
        raise ValueError(f"{weights} does not fit its {CONFIG}: {n_layers} layers, but {len(shapes)} tensors")


def compare_shapes(expected: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], weights: Path) -> None:
    """Raise ValueError, which says where, if a file does not hold just the tensors that are expected."""
    where = f"{weights} does not fit its {CONFIG}"
    if missing := sorted(set(expected) - set(shapes)):
        raise ValueError(f"{where}: it lacks {_some(missing)}")
    if foreign := sorted(set(shapes) - set(expected)):
        raise ValueError(f"{where}: it has {_some(foreign)}, which the model does not")
    for name, shape in shapes.items():
        if shape != expected[name].shape:
            raise ValueError(f"{where}: {name} must be {tuple(expected[name].shape)}; got {shape}")


def read_config(path: Path) -> tuple[int, MinMaxRNCLMConfig]:
    """The vocabulary size and the configuration in a config.json of ours."""
    if (values := read_json(path, MOST_CONFIG)) is None:
        raise FileNotFoundError(f"{path} is missing")
    if values.get("format") != FORMAT:
        raise ValueError(f'{path} is not the configuration of a latchwork model: it lacks "format": "{FORMAT}"')
    if unknown := set(values) - {"format", "vocab_size", "model"}:
        raise ValueError(f"{path} has unknown keys: {_some(sorted(unknown))}")
    try:
        vocab_size, model = values["vocab_size"], values["model"]
        if type(vocab_size) is not int or not 1 <= vocab_size <= MOST_TOKENS:
            raise ValueError(f"vocab_size must be an integer from 1 to {MOST_TOKENS:,}; got {vocab_size!r}")
        if not isinstance(model, dict):
            raise TypeError(f"model must be a mapping; got {model!r}")
        return vocab_size, MinMaxRNCLMConfig.from_dict(model)
    except KeyError as error:
        raise ValueError(f"{path} lacks the key {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _own_tensors(model: MinMaxRNC_LM) -> dict[str, Tensor]:
    tensors = dict(model.state_dict())
    if model.config.tie_weights:
        del tensors["head.weight"]
    return tensors


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
