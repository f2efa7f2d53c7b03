"""Every model by its kind or its name: made from a config, written to a folder, read back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from latchwork.baselines.baseline import Baseline
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

BASELINE = "latchwork-baseline"  # the format of their config.json
NEEDED = ("d_model", "n_layers", "d_state")  # of ours; the rest has defaults
MOST_WIDTH = 1 << 18  # of a baseline

Name = Literal["minmax", "transformer", "lstm", "gru", "mamba", "slstm", "mlstm", "xlstm-l"]


@dataclass(frozen=True)
class Kind:
    """A kind of baseline: its class, the options that it needs or may have, and the packages that it is made of."""

    where: str
    needed: tuple[str, ...] = ("n_layers", "width")
    optional: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def make(self, vocabulary: int, **options: Any) -> Baseline:
        """The model, with fresh weights."""
        module, name = self.where.split(":")
        made: Baseline = getattr(import_module(f"latchwork.baselines.{module}"), name)(
            vocabulary, **options, **self.fixed
        )
        return made


KINDS = {
    "transformer": Kind("transformer:Transformer", optional=("heads", "positions", "window")),
    "lstm": Kind("recurrent:Recurrent", fixed={"kind": nn.LSTM}),
    "gru": Kind("recurrent:Recurrent", fixed={"kind": nn.GRU}),
    "mamba": Kind("mamba:Mamba", packages=("transformers",)),
    "slstm": Kind("slstm:SLSTM", packages=("xlstm",)),
    "mlstm": Kind("mlstm:MLSTM", packages=("xlstm",)),
    "xlstm-l": Kind("xlstm_large:XLSTMLarge", packages=("xlstm", "mlstm_kernels")),
}

# The baselines of the paper's synthetic tasks by name. The widths of the first seven are the paper's, those of the last
# three give about as many parameters. The window is as long as the longest validation sequence.
PRESETS: dict[str, tuple[Name, Mapping[str, int]]] = {
    "mamba-s": ("mamba", {"width": 95}),
    "mamba-m": ("mamba", {"width": 100}),
    "slstm-s": ("slstm", {"width": 96}),
    "slstm-m": ("slstm", {"width": 100}),
    "mlstm-s": ("mlstm", {"width": 96}),
    "mlstm-m": ("mlstm", {"width": 97}),
    "xlstm-l-s": ("xlstm-l", {"width": 72}),
    "lstm-s": ("lstm", {"width": 89}),
    "gru-s": ("gru", {"width": 103}),
    "transformer-s": ("transformer", {"width": 72, "window": 2048}),
}
# Ours of the synthetic tasks: 90 wide, the paper's.
NOTHING: Mapping[str, Any] = {}
MINMAX: dict[str, Mapping[str, Any]] = {"minmax-s": {"d_state": 40}, "minmax-m": {"d_state": 90}}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What is trained. kind: ours or a baseline. options: the fields of its configuration, or its sizes."""

    kind: Name = "minmax"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def resolved(self) -> dict[str, Any]:
        """Plain values of the complete configuration, defaults included."""
        if self.kind == "minmax":
            return {"kind": self.kind, "options": minmax_config(self.options).to_dict()}
        return {"kind": self.kind, "options": dict(self.options)}


def make_model(config: ModelConfig, vocabulary: int) -> nn.Module:
    """The model with fresh weights from torch's generator: tokens in; logits and state out."""
    if config.kind == "minmax":
        return MinMaxRNC_LM(vocabulary, minmax_config(config.options))
    if config.kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(get_args(Name))}; got {config.kind!r:.80}")
    kind = KINDS[config.kind]
    if not set(kind.needed) <= set(config.options) <= {*kind.needed, *kind.optional}:
        may = f", and may be {', '.join(kind.optional)}" if kind.optional else ""
        raise ValueError(
            f"model.options of {config.kind} must be {', '.join(kind.needed)}{may}; got {dict(config.options)}"
        )
    for name, value in config.options.items():
        most = MOST_LAYERS if name == "n_layers" else MOST_WIDTH
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"model.options: {name} must be an integer from 1 to {most:,}; got {value!r:.80}")
    model = kind.make(vocabulary, **config.options)
    model.made_of = config
    return model


def preset(name: str, n_layers: int = 2, changes: Mapping[str, Any] = NOTHING) -> ModelConfig:
    """The config of a model of the synthetic tasks, ours or a baseline, by its name. changes: for ours alone."""
    if name in MINMAX:
        whole = MinMaxRNCLMConfig.small(**{**MINMAX[name], "n_layers": n_layers, **changes})
        return ModelConfig(options=whole.to_dict())
    if name not in PRESETS:
        nearest = sorted(PRESETS, key=lambda each: -SequenceMatcher(None, str(name), each).ratio())
        raise ValueError(f"name {name!r} is unknown; there are {', '.join(nearest)}")
    kind, options = PRESETS[name]
    return ModelConfig(kind=kind, options={"n_layers": n_layers, **options})


def make_baseline(name: str, vocabulary: int, n_layers: int = 2) -> Baseline:
    """A model that the paper compares with, or one like them, with fresh weights.

    >>> make_baseline("gru-s", 20).parameter_count()
    130604
    """
    model = make_model(preset(name, n_layers), vocabulary)
    assert isinstance(model, Baseline)
    return model


def packages(name: str) -> tuple[str, ...]:
    """The optional packages that a model needs, by its kind or its name.

    >>> packages("mamba-s"), packages("gru")
    (('transformers',), ())
    """
    kind = PRESETS[name][0] if name in PRESETS else name
    return KINDS[kind].packages if kind in KINDS else ()


def minmax_config(options: Mapping[str, Any]) -> MinMaxRNCLMConfig:
    """The configuration of ours: complete, as `to_dict` gives it, or from the fields of both its parts side by side."""
    if "backbone" in options:
        return MinMaxRNCLMConfig.from_dict(options)
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


def fresh(model: nn.Module) -> nn.Module:
    """Another model of the same configuration, with fresh weights."""
    if isinstance(model, MinMaxRNC_LM):
        return MinMaxRNC_LM(model.vocab_size, model.config)
    if not isinstance(model, Baseline) or model.made_of is None:
        raise ValueError(
            f"model must be a MinMaxRNC_LM, or a baseline that make_model made; got {type(model).__name__}"
        )
    return make_model(model.made_of, model.vocabulary)


def save_model(folder: str | os.PathLike[str], model: nn.Module, tensors: Mapping[str, Tensor] | None = None) -> None:
    """Write config.json and model.safetensors: for ours as its own `save` does, for a baseline likewise.

    tensors: all `own_tensors` in one piece, where the model has only a part of each.
    """
    folder = Path(folder)
    if isinstance(model, MinMaxRNC_LM):
        if tensors is not None:
            model = fresh(model)
            load_tensors(model, tensors)
            assert isinstance(model, MinMaxRNC_LM)
        model.save(folder)
        return
    config = getattr(model, "made_of", None)
    if not isinstance(model, Baseline) or config is None:
        raise ValueError(
            f"model must be a MinMaxRNC_LM, or a baseline that make_model made, to be saved; got {type(model).__name__}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    values = {"format": BASELINE, "vocabulary": model.vocabulary, "kind": config.kind, "options": dict(config.options)}
    write_tensors(folder / WEIGHTS, tensors or own_tensors(model), {"config": json.dumps(values)})
    write_json(folder / CONFIG, values)


def load_folder(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> nn.Module:
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
