"""A trained model by its name or its folder, whatever trained it."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

import torch
from torch import nn

MODEL = "model"  # the folder of the model in the folder of a run


def load_model(path_or_name: str | os.PathLike[str], device: str | torch.device = "cpu") -> nn.Module:
    """The model of the zoo of that name, or of a model's folder, or of a run's folder; in evaluation mode.

    >>> load_model("parity").vocab_size
    2
    """
    from latchwork import zoo
    from latchwork.baselines.registry import load_folder

    if str(path_or_name) in zoo.names():
        return zoo.load(str(path_or_name)).to(device)
    return load_folder(find_folder(path_or_name), device)


def find_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of the model, given it or the folder of a run; else an error that says what is there."""
    from latchwork import zoo

    folder = Path(path)
    if not os.fspath(path) or not folder.exists():
        near = get_close_matches(str(path), zoo.names(), n=3) or zoo.names()
        raise FileNotFoundError(
            f"{str(path)!r} is no folder and no network of the zoo; did you mean {', '.join(near)}?"
        )
    if (folder / MODEL).is_dir():
        return folder / MODEL
    if (folder / "manifest.json").exists() and not (folder / "config.json").exists():
        raise ValueError(f"{folder} is the folder of a run that is not finished: it has no model yet")
    return folder
