"""A model on disk: a folder with config.json and model.safetensors. No pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from latchwork.models.config import MinMaxRNCLMConfig

if TYPE_CHECKING:
    from latchwork.models.language_model import MinMaxRNC_LM

FORMAT = "latchwork"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save(model: MinMaxRNC_LM, folder: str | os.PathLike[str]) -> None:
    """Write config.json and model.safetensors into folder, which is made if missing.

    Each file is written under a temporary name and renamed, the weights last. A weight that two modules share is
    written once.
    """
    if any(not value.is_floating_point() for value in model.state_dict().values()):
        raise ValueError("model must have floating-point weights: save the model that an int8 one is made from")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().contiguous() for name, value in _own_tensors(model).items()}
    values = {"format": FORMAT, "vocab_size": model.vocab_size, "model": model.config.to_dict()}
    mark = f".{os.getpid()}.tmp"
    temporary = {name: folder / f".{name}{mark}" for name in (CONFIG, WEIGHTS)}
    try:
        temporary[CONFIG].write_text(json.dumps(values, indent=2) + "\n")
        save_file(tensors, temporary[WEIGHTS], metadata={"format": "pt"})
        for name in (CONFIG, WEIGHTS):
            temporary[name].replace(folder / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> MinMaxRNC_LM:
    """The model that `save` wrote, in eval mode, its weights in the dtype they were saved in."""
    from latchwork.models.language_model import MinMaxRNC_LM

    folder = Path(folder)
    vocab_size, config = read_config(folder / CONFIG)
    tensors = read_tensors(folder / WEIGHTS, device)
    with torch.device("meta"):
        model = MinMaxRNC_LM(vocab_size, config)
    expected = _own_tensors(model)
    where = f"{folder / WEIGHTS} does not fit its {CONFIG}"
    if missing := sorted(set(expected) - set(tensors)):
        raise ValueError(f"{where}: it lacks {_some(missing)}")
    if foreign := sorted(set(tensors) - set(expected)):
        raise ValueError(f"{where}: it has {_some(foreign)}, which the model does not")
    for name, value in tensors.items():
        if value.shape != expected[name].shape:
            raise ValueError(f"{where}: {name} must be {tuple(expected[name].shape)}; got {tuple(value.shape)}")
        if not value.is_floating_point():
            raise ValueError(f"{where}: {name} must be a floating-point tensor; got {value.dtype}")
    model.load_state_dict(tensors, strict=False, assign=True)
    if config.tie_weights:
        model.head.weight = model.embedding.weight
    return model.eval()


def read_config(path: Path) -> tuple[int, MinMaxRNCLMConfig]:
    """The vocabulary size and the configuration in a config.json of ours."""
    try:
        values: Any = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not whole JSON: {error}") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ValueError(f'{path} is not the configuration of a latchwork model: it lacks "format": "{FORMAT}"')
    if unknown := set(values) - {"format", "vocab_size", "model"}:
        raise ValueError(f"{path} has unknown keys: {_some(sorted(unknown))}")
    try:
        vocab_size, model = values["vocab_size"], values["model"]
        if not isinstance(vocab_size, int):
            raise TypeError(f"vocab_size must be an integer; got {vocab_size!r}")
        if not isinstance(model, dict):
            raise TypeError(f"model must be a mapping; got {model!r}")
        return vocab_size, MinMaxRNCLMConfig.from_dict(model)
    except KeyError as error:
        raise ValueError(f"{path} lacks the key {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def read_tensors(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error


def _own_tensors(model: MinMaxRNC_LM) -> dict[str, Tensor]:
    tensors = dict(model.state_dict())
    if model.config.tie_weights:
        del tensors["head.weight"]
    return tensors


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
