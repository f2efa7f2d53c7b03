"""Pretrain a language model: begin, or go on, and leave the model, its metrics and a record."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.files import read_json
from latchwork.models import MinMaxRNC_LM
from latchwork.pretraining.checkpoint import Tell
from latchwork.pretraining.config import PretrainingConfig
from latchwork.pretraining.corpus import TOKENIZER, Corpus
from latchwork.pretraining.distributed import Strategy, processes
from latchwork.pretraining.flops import flops_per_token, measure_peak
from latchwork.pretraining.loop import Training, Watch
from latchwork.pretraining.model import make_model, own_tensors, save_model
from latchwork.training.folder import RunFolder
from latchwork.training.manifest import manifest
from latchwork.training.seeds import seed_everything

MODEL = "model"


def pretrain(
    config: PretrainingConfig,
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    device: str = "cpu",
    strategy: Strategy = "ddp",
    peak: float | None = None,
    watch: Watch | None = None,
    tell: Tell = lambda text: None,
) -> dict[str, Any]:
    """Run, or go on after the last checkpoint, or return the record if it is finished.

    Under torchrun every process calls it. strategy: how they share the model. peak: floating-point operations a second
    that one process could do, to tell what part is used; None measures it. watch, tell: of the first process alone.
    On one process, a run that is cut off at any moment and gone on with ends with the bits of one that is not.
    """
    text = Corpus(corpus)
    if config.vocabulary not in (None, text.vocabulary):
        raise ValueError(
            f"{config.name} wants a corpus with a vocabulary of {config.vocabulary}; {text.path} has {text.vocabulary}"
        )
    path = Path(out)
    if (found := read_json(path / "record.json")) is not None:
        if not is_of(config, found["config"]):
            raise ValueError(f"{path} holds a finished run of another config: choose another --out")
        return found
    with processes(device) as here:
        if here.first:
            description = _begin(path, config, text)
        here.wait()
        folder = RunFolder(path)
        seed_everything(config.seed)
        model = make_model(config.model, text.vocabulary).to(here.device)
        if isinstance(model, MinMaxRNC_LM):
            model.backbone.gradient_checkpointing = config.gradient_checkpointing
        parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
        flops = flops_per_token(model, config.model, config.batch.context)
        types = {torch.float32, torch.bfloat16 if config.precision == "bfloat16" else torch.float32}
        training = Training(
            config,
            model,
            (text.train, text.validation),
            folder=folder,
            here=here,
            strategy=strategy,
            flops=flops,
            peak=peak or measure_peak(here.device, types),
            watch=watch if here.first else None,
            tell=tell if here.first else lambda text: None,
        )
        with closing(training):
            place = training.run()
            validation = training.last_validation or training.validate()
        tensors = whole_tensors(model)
        record: dict[str, Any] = {}
        if here.first:
            save_model(path / MODEL, config.model, text.vocabulary, tensors)
            shutil.copytree(text.path / TOKENIZER, path / MODEL / TOKENIZER, dirs_exist_ok=True)
            record = {
                "config": config.to_dict(),
                "parameters": parameters,
                "vocabulary": text.vocabulary,
                "flops_per_token": flops,
                "peak": training.peak,
                **{name: value for name, value in asdict(place).items() if name != "lines"},
                "validation": asdict(validation),
                "processes": here.world,
                "manifest": {name: value for name, value in description.items() if name != "config"},
            }
            folder.finish(record)
        here.wait()
    return record


def _begin(path: Path, config: PretrainingConfig, text: Corpus) -> dict[str, Any]:
    """Write the manifest, or check that the folder is of this config and these tokens."""
    tokens = {"vocabulary": text.vocabulary, "train": len(text.train), "validation": len(text.validation)}
    begun = (read_json(path / "manifest.json") or {}).get("config", {}).get("pretraining")
    own = begun if begun is not None and is_of(config, begun) else config.to_dict()
    description = manifest({"pretraining": own, "corpus": tokens})
    RunFolder(path).begin(description)
    return description


def is_of(config: PretrainingConfig, values: Mapping[str, Any]) -> bool:
    """Whether values are of a configuration: a field that was not there yet when they were written has its default."""
    try:
        return PretrainingConfig.from_dict(values) == config
    except ValueError:
        return False


def whole_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors in one piece, on the CPU; where they are in parts, all processes call it."""
    own: dict[str, Any] = dict(own_tensors(model))
    whole = {name: each.full_tensor() if hasattr(each, "full_tensor") else each for name, each in own.items()}
    return {name: each.detach().cpu() for name, each in whole.items()}
