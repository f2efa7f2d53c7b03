"""Pretrain a language model: start, or resume, and leave the model, its metrics and a record."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

import torch

from latchwork.baselines.registry import ModelConfig, make_model, parameter_count, save_model
from latchwork.data.corpus import TOKENIZER, Corpus
from latchwork.models import MinMaxRNC_LM
from latchwork.seeds import seed_everything
from latchwork.signals import stop_when_safe
from latchwork.training.checkpoint import Tell
from latchwork.training.config import PretrainingConfig
from latchwork.training.distributed import Strategy, processes, whole_tensors
from latchwork.training.engine import Training, Watch
from latchwork.training.flops import flops_per_token, measure_peak
from latchwork.training.plans.steps import Steps
from latchwork.training.run_folder import RunFolder, open_run
from latchwork.training.windows import check_splits


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
    if (found := RunFolder(out).finished(asked)) is not None:
        tell(f"{out} holds this run, finished: its record is shown")
        return found
    with processes(device) as here, open_run(out, asked, here) as folder, stop_when_safe() as stop:
        if (found := here.agree(folder.finished(asked) if here.first else None)) is not None:
            return dict(found)  # it was finished while we came to the lock
        seed_everything(config.seed)
        model = make_model(config.model, text.vocabulary).to(here.device)
        if isinstance(model, MinMaxRNC_LM):
            model.backbone.gradient_checkpointing = config.gradient_checkpointing
        plan = Steps(config, (text.train, text.validation), here.world)
        plan.flops = flops_per_token(model, config.model, config.batch.context)
        types = {torch.float32, torch.bfloat16 if config.precision == "bfloat16" else torch.float32}
        plan.peak = peak or measure_peak(here.device, types)
        parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
        training = Training(plan, model, folder=folder, here=here, strategy=strategy, watch=watch, tell=tell, stop=stop)
        with closing(training):
            place = training.run()
        tensors = whole_tensors(model)
        record: dict[str, Any] = {}
        if here.first:
            assert plan.validation is not None
            save_model(folder.model, model, tensors)
            shutil.copytree(text.path / TOKENIZER, folder.model / TOKENIZER, dirs_exist_ok=True)
            spent = {name: getattr(place, name) for name in ("step", "tokens", "seconds", "processor_seconds")}
            record = folder.finish(
                {
                    "parameters": parameters,
                    "vocabulary": text.vocabulary,
                    "flops_per_token": plan.flops,
                    "peak": plan.peak,
                    **spent,
                    "validation": asdict(plan.validation),
                    "processes": here.world,
                }
            )
        here.wait()
    return record


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
    options = dict(config.options)
    layers = options.get("n_layers")
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
    return {**complete(config), "corpus": tokens}


def complete(config: PretrainingConfig) -> dict[str, Any]:
    """The config as a run records it: plain values, the model with all its defaults."""
    return {"plan": "steps", **config.to_dict(), "model": config.model.resolved()}
