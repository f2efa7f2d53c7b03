"""Train a model: the plans as functions. Each trains in memory, or in a folder where it can be resumed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from latchwork.automata.findings import Proof
from latchwork.baselines.registry import load_folder, own_tensors, save_model
from latchwork.evaluation.accuracy import ModeGap
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.modules import set_temperature
from latchwork.seeds import seed_everything
from latchwork.signals import NEVER, Stop, stop_when_safe
from latchwork.tasks.task import Task
from latchwork.training.curriculum import Learning, LengthCurriculum
from latchwork.training.distributed import Processes, Strategy, load_whole, whole_tensors
from latchwork.training.engine import Training, Watch
from latchwork.training.plan import Plan
from latchwork.training.plans.by_length import ByLength
from latchwork.training.plans.epochs import Epochs
from latchwork.training.plans.until_proved import UntilProved
from latchwork.training.proof import Attempt, ProofProtocol
from latchwork.training.protocol import History, TrainingProtocol
from latchwork.training.run_folder import RunFolder, open_run
from latchwork.training.trainer import Trainer

Folder = str | os.PathLike[str] | None
CURRICULUM, PROTOCOL = LengthCurriculum(), ProofProtocol()  # the defaults


def run_plan(
    plan: Plan,
    model: nn.Module,
    *,
    folder: Folder = None,
    config: Mapping[str, Any] | None = None,
    here: Processes | None = None,
    strategy: Strategy = "ddp",
    watch: Watch | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run a plan to its end; the model is trained in place. Returns a record, plain values as JSON takes them.

    folder: None trains in memory alone. In a folder, SIGINT and SIGTERM save and raise Stopped, an unfinished run is
    resumed bit for bit, and a finished one is loaded into the plan and the model. config: what decides the result
    besides the plan's name, its seed and the model; a folder of another config is an error.
    here: this process among several, from `processes`. strategy: how they share the model.
    """
    here = here or Processes(0, 1, next(model.parameters()).device)
    with ExitStack() as held:
        run, stop = None, NEVER
        if folder is not None:
            described = {"plan": plan.name, "seed": plan.seed, "model": describe(model), **(config or {})}
            run = held.enter_context(open_run(folder, described, here))
            found = here.agree(run.finished(described) if here.first else None)
            if found is not None:
                plan.restore(found["training"])
                plan.stopped = found["stopped"]
                load_whole(model, own_tensors(load_folder(run.model)))
                return dict(found)
            stop = held.enter_context(stop_when_safe())
        training = held.enter_context(
            closing(Training(plan, model, folder=run, here=here, strategy=strategy, watch=watch, tell=tell, stop=stop))
        )
        place = training.run()
        spent = {name: value for name, value in asdict(place).items() if name not in ("lines", "evaluated", "stopped")}
        record: dict[str, Any] = {
            "stopped": plan.stopped,
            "parameters": sum(each.numel() for each in model.parameters()),
            **spent,
        }
        record["training"] = plan.state()
        if run is not None:
            tensors = whole_tensors(model)
            if here.first:
                save_model(run.model, model, tensors)
                record = run.finish(record)
            here.wait()
        return record


def describe(model: nn.Module) -> dict[str, Any]:
    """The complete configuration of a model, plain values."""
    if isinstance(model, MinMaxRNC_LM):
        return {"kind": "minmax", "vocabulary": model.vocab_size, "options": model.config.to_dict()}
    made_of = getattr(model, "made_of", None)
    if made_of is None:
        return {"kind": type(model).__name__}
    return {"kind": made_of.kind, "vocabulary": model.vocabulary, "options": dict(made_of.options)}


def train(
    model: nn.Module,
    task: Task,
    *,
    trainer: Trainer,
    batch_size: int,
    protocol: TrainingProtocol,
    seed: int,
    folder: RunFolder | None = None,
    here: Processes | None = None,
    watch: Watch | None = None,
    seconds_left: float = float("inf"),
    stop: Stop = NEVER,
) -> History:
    """Train by the paper's protocol, and leave the model with its best weights, those of the best validation accuracy.

    folder: of a run that the caller has opened; an unfinished run there is resumed bit for bit. stop: when it asks, a
    checkpoint is written and Stopped is raised. A network that is right only with dropout on is warned of.
    """
    plan = Epochs(task, trainer, batch_size, protocol, seed, seconds_left)
    with closing(Training(plan, model, folder=folder, here=here, watch=watch, stop=stop)) as training:
        training.run()
    if plan.best:
        load_whole(model, plan.best)
    gap = plan.history.mode_gap
    if gap is not None and (warning := ModeGap(**gap).warning) is not None:
        warnings.warn(warning, RuntimeWarning, stacklevel=2)
    return plan.history


def learn_by_length(
    model: nn.Module,
    task: Task,
    curriculum: LengthCurriculum = CURRICULUM,
    *,
    seed: int = 0,
    folder: Folder = None,
    here: Processes | None = None,
    watch: Watch | None = None,
) -> Learning:
    """Train a model in place, from short words to long ones, until it is always right or a limit is reached.

    model: tokens (B, T) and a state to logits and a state. task: whether every answer counts or, as in LastStep, only
    the last. seed: of the words; each step draws new ones. folder: as in `run_plan`. watch: called after each step.
    """
    plan = ByLength(task, curriculum, seed)
    config = {"task": task.name, "curriculum": asdict(curriculum), "threads": torch.get_num_threads()}
    try:
        run_plan(plan, model, folder=folder, config=config, here=here, watch=watch)
    finally:
        set_temperature(model, 1.0)
    return plan.found


def train_until_proved(
    task: Task,
    config: MinMaxRNCLMConfig,
    *,
    seed: int = 0,
    protocol: ProofProtocol = PROTOCOL,
    folder: Folder = None,
    watch: Watch | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Attempt:
    """Train a new network on random words of the task's machine until it is proved right, or the rounds are used up.

    folder: as in `run_plan`. tell: called with a line after each round.
    """
    seed_everything(seed)
    model, plan = MinMaxRNC_LM(task.vocabulary, config), UntilProved(task, protocol, seed)
    described = {"task": task.name, "protocol": asdict(protocol), "threads": torch.get_num_threads()}
    record = run_plan(plan, model, folder=folder, config=described, watch=watch, tell=tell)
    if isinstance(plan.result, Proof):
        model = plan.certified(model.eval(), len(plan.rounds) - 1)
    return Attempt(model.eval(), plan.result, plan.rounds, record["seconds"] + record["evaluation_seconds"])
