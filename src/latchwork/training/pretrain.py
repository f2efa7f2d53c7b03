"""Pretrain a language model: begin, or resume, and leave the model, its metrics and a record."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.data.corpus import TOKENIZER, Corpus
from latchwork.files import read_json
from latchwork.models import MinMaxRNC_LM
from latchwork.run_lock import run_lock
from latchwork.seeds import seed_everything
from latchwork.signals import stop_when_safe
from latchwork.training.checkpoint import Tell
from latchwork.training.config import ModelConfig, PretrainingConfig
from latchwork.training.distributed import Processes, Strategy, processes
from latchwork.training.engine import Training, Watch
from latchwork.training.flops import flops_per_token, measure_peak
from latchwork.training.folder import RunFolder
from latchwork.training.manifest import manifest
from latchwork.training.models import make_model, own_tensors, parameter_count, save_model
from latchwork.training.windows import check_splits

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
    """Run, or resume from the last checkpoint, or return the record if it is finished.

    Under torchrun every process calls it. strategy: how they share the model. peak: floating-point operations a second
    that one process could do, to tell what part is used; None measures it. watch, tell: of the first process alone.
    On one process, a run that is cut off at any moment and resumed ends with the bits of one that is not.
    SIGINT or SIGTERM: save, and raise Stopped.
    """
    text = Corpus(corpus)
    if os.environ.get("RANK", "0") == "0":
        text.verify()  # a changed token would be learnt; the first process reads all files once
    if config.vocabulary not in (None, text.vocabulary):
        raise ValueError(
            f"{config.name} wants a corpus with a vocabulary of {config.vocabulary}; {text.path} has {text.vocabulary}"
        )
    check_splits(config, len(text.train), len(text.validation))
    if device == "cpu":
        _check_memory(config, text.vocabulary)
    asked = _describe(config, text)
    folder = RunFolder(out, partial(_complete, asked["corpus"]))
    if (found := folder.finished(asked)) is not None:
        tell(f"{folder.path} holds this run, finished: its record is shown")
        return found
    with processes(device) as here, ExitStack() as held:
        description = _begin(folder, asked, here, held)
        if (found := here.agree(read_json(folder.record))) is not None:  # it was finished while we came to the lock
            return dict(found)
        seed_everything(config.seed)
        model = make_model(config.model, text.vocabulary).to(here.device)
        if isinstance(model, MinMaxRNC_LM):
            model.backbone.gradient_checkpointing = config.gradient_checkpointing
        parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
        flops = flops_per_token(model, config.model, config.batch.context)
        types = {torch.float32, torch.bfloat16 if config.precision == "bfloat16" else torch.float32}
        stop = held.enter_context(stop_when_safe())
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
            stop=stop,
        )
        with closing(training):
            place, validation = training.run()
        tensors = whole_tensors(model)
        record: dict[str, Any] = {}
        if here.first:
            save_model(folder.path / MODEL, config.model, text.vocabulary, tensors)
            shutil.copytree(text.path / TOKENIZER, folder.path / MODEL / TOKENIZER, dirs_exist_ok=True)
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


def _begin(folder: RunFolder, asked: dict[str, Any], here: Processes, held: ExitStack) -> dict[str, Any]:
    """Lock the folder and write its manifest. What keeps the first process from that is an error in all."""
    description: dict[str, Any] = {}
    problem: Exception | None = None
    if here.first:
        description = manifest(asked)
        try:
            held.enter_context(run_lock(folder.path))
            folder.begin(description)
        except (OSError, ValueError) as error:
            problem = error
    problem = here.agree(problem)
    if problem is not None:
        raise problem
    return description


def _check_memory(config: PretrainingConfig, vocabulary: int) -> None:
    """Raise MemoryError, before anything is made, if weights, gradients, moments and tokens do not fit this machine."""
    try:
        have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return
    needed = 8 * config.batch.micro * config.batch.context + 16 * _parameters(config.model, vocabulary)
    if needed > have:
        raise MemoryError(f"{config.name} needs {needed / 1e9:,.0f} GB at least; this machine has {have / 1e9:,.0f} GB")


def _parameters(config: ModelConfig, vocabulary: int) -> int:
    """How many parameters a model would have; every layer beyond the second has as many as the third."""
    layers = config.options.get("n_layers")
    try:
        if not isinstance(layers, int) or layers <= 3:
            return parameter_count(config, vocabulary)
        few = [replace(config, options={**config.options, "n_layers": each}) for each in (2, 3)]
        two, three = (parameter_count(each, vocabulary) for each in few)
    except RuntimeError as error:  # torch cannot even count them
        raise MemoryError(f"model.options {dict(config.options)} are too large: {error}") from None
    return two + (layers - 2) * (three - two)


def _describe(config: PretrainingConfig, text: Corpus) -> dict[str, Any]:
    hashes = json.dumps([text.manifest["tokenizer"], text.manifest["splits"]], sort_keys=True).encode()
    tokens = {
        "vocabulary": text.vocabulary,
        "train": len(text.train),
        "validation": len(text.validation),
        "sha256": hashlib.sha256(hashes).hexdigest(),
    }
    return {"pretraining": config.to_dict(), "corpus": tokens}


def _complete(corpus: Mapping[str, Any], config: Any) -> Any:
    """A field that was not there yet when a manifest was written: of the config its default, of the corpus this one."""
    try:
        values = PretrainingConfig.from_dict(config["pretraining"]).to_dict()
        return {"pretraining": values, "corpus": {"sha256": corpus["sha256"], **config["corpus"]}}
    except (KeyError, TypeError, ValueError):
        return config


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
