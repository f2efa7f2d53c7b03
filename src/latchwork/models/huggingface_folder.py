"""A folder in the Hugging Face format, checked before transformers reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from latchwork.files import inside, read_json
from latchwork.models.checkpoint import CONFIG, MOST_CONFIG, WEIGHTS, check_layers, compare_shapes
from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.tensor_files import check_hash, read_shapes

INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The files of a folder that hold weights: one, or those that an index names."""
    if (index := read_json(folder / INDEX)) is None:
        return [path] if (path := folder / WEIGHTS).exists() else []
    source, names = folder / INDEX, index.get("weight_map")
    if not isinstance(names, dict):
        raise ValueError(f"{source} must say the file of each tensor under 'weight_map'; got {names!r:.80}")
    names = dict.fromkeys(map(str, names.values()))
    return [inside(folder, name, source, links=True) for name in names]  # the hub's cache is made of links


def check_folder(folder: Path, config: Any, read: Callable[[dict[str, Any]], Any], any_size: bool) -> None:
    """Compare what a folder holds with its hashes and its configuration, before transformers makes a model of it.

    config: in place of the folder's, or None. read: makes one of the values of a config.json. any_size: take tensors of
    other shapes than the configuration asks for.
    """
    found: dict[str, tuple[int, ...]] = {}
    for path in (files := weight_files(folder)):
        shapes, metadata = read_shapes(path)
        check_hash(path, metadata)
        found |= shapes
    if config is None:
        if (values := read_json(folder / CONFIG, MOST_CONFIG)) is None:
            raise FileNotFoundError(f"{folder / CONFIG} is missing")
        try:
            config = read(values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder / CONFIG}: {error}") from error
    if not files or not hasattr(config, "to_latchwork"):
        return
    check_layers(config.n_layers, found, files[0])
    with torch.device("meta"):
        expected = MinMaxRNC_LM(config.vocab_size, config.to_latchwork()).state_dict()
    own = {f"lm.{name}": each for name, each in expected.items() if f"lm.{name}" in found}
    if not any_size:
        compare_shapes(own, {name: found[name] for name in own}, files[0])
