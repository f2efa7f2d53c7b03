"""Run one experiment for one seed: train by the paper's protocol, evaluate, leave a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

import torch
from torch import nn

from latchwork.baselines.registry import save_model
from latchwork.differences import differences, summary
from latchwork.evaluation.accuracy import measure
from latchwork.evaluation.statistics import bootstrap, enough_data
from latchwork.evaluation.streaming import evaluate
from latchwork.experiments.experiment import Experiment
from latchwork.files import read_json, write_json
from latchwork.seeds import seed_everything
from latchwork.signals import stop_when_safe
from latchwork.tasks import Task, make_task
from latchwork.training.distributed import Processes
from latchwork.training.engine import Progress, Watch
from latchwork.training.protocol import EvaluationProtocol, Scale
from latchwork.training.run_folder import REMEDY, RunFolder, open_run
from latchwork.training.train import train
from latchwork.training.trainer import TRAINERS

SEEDS = ("min_seeds", "max_seeds", "confidence", "margin", "hours")
TRAIN_SAMPLE = 1000  # training sequences on which the best weights are measured once more


def run_folder(out: Path, scale: str, experiment: Experiment, batch_size: int, seed: int) -> Path:
    """Where a run lives."""
    return out / scale / experiment.name / f"batch{batch_size}-seed{seed}"


def config_of(
    experiment: Experiment, scale: Scale, *, batch_size: int, seed: int, threads: int, device: str
) -> dict[str, Any]:
    """All that decides what a run comes to, complete. How many more runs there are does not."""
    training = {name: value for name, value in asdict(scale.training).items() if name not in SEEDS}
    return {
        "plan": "epochs",
        **{name: getattr(experiment, name) for name in ("name", "table", "task")},
        "model": {"name": experiment.model, **experiment.model_config().resolved()},
        "trainer": asdict(TRAINERS[experiment.trainer]),
        "scale": {"name": scale.name, "training": training, "evaluation": asdict(scale.evaluation)},
        "batch_size": batch_size,
        "seed": seed,
        "threads": threads,
        "device": device,
    }


def finished(folder: RunFolder, config: dict[str, Any], hours: float) -> dict[str, Any] | None:
    """The record of a finished run of this config, or None; a run of another config is an error.

    hours: the time limit. It is part of the config of a run that it stopped, and of no other.
    """
    record = folder.finished(config)
    if record is not None:
        _check_hours(folder, record["training"]["stopped"], record["training"]["hours"], hours)
    return record


def _check_hours(folder: RunFolder, stopped: str, there: float | None, here: float) -> None:
    lines = differences(there, here, "hours")
    if stopped == "time limit" and lines:
        raise ValueError(f"{folder.path} holds a run that its time limit stopped: {summary(lines)}. {REMEDY}")


def run(
    experiment: Experiment,
    scale: Scale,
    *,
    batch_size: int,
    seed: int,
    out: Path,
    threads: int = 1,
    device: str = "cpu",
    seconds_left: float = float("inf"),
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Run, or resume, or return the record if it is finished. SIGINT or SIGTERM: save, and raise Stopped.

    One thread by default: two runs side by side use two cores better than one run does, and sums come out the same.
    """
    path = run_folder(out, scale.name, experiment, batch_size, seed)
    config = config_of(experiment, scale, batch_size=batch_size, seed=seed, threads=threads, device=device)
    hours = scale.training.hours
    if (found := finished(RunFolder(path), config, hours)) is not None:
        return found
    with open_run(path, config, Processes(0, 1, torch.device(device))) as folder:
        if (found := finished(folder, config, hours)) is not None:  # it was finished while we came to the lock
            return found
        torch.set_num_threads(threads)
        task = make_task(experiment.task)
        seed_everything(seed)
        model = experiment.make_model(task.vocabulary).to(device)
        with stop_when_safe() as stop:
            history = train(
                model,
                task,
                trainer=TRAINERS[experiment.trainer],
                batch_size=batch_size,
                protocol=scale.training,
                seed=seed,
                folder=folder,
                watch=watch,
                seconds_left=seconds_left,
                stop=stop,
            )
        _check_hours(folder, history.stopped, history.hours, hours)
        rows = min(TRAIN_SAMPLE, scale.training.sequences or TRAIN_SAMPLE)
        accuracy = measure(model, task.sample("train", seed, rows)).accuracy
        save_model(folder.model, model)
        evaluation = evaluate_until_sure(model, task, scale.evaluation, folder, watch)
        named = {name: getattr(experiment, name) for name in ("table", "task", "model", "trainer", "n_layers")}
        return folder.finish(
            {
                "experiment": experiment.name,
                **named,
                "changes": dict(experiment.changes),
                "scale": scale.name,
                "batch_size": batch_size,
                "seed": seed,
                "parameters": sum(each.numel() for each in model.parameters() if each.requires_grad),
                "vocabulary": task.vocabulary,
                "training": {
                    **{name: getattr(history, name) for name in ("stopped", "hours", "best_epoch")},
                    "train_accuracy": accuracy,
                    "validation_accuracy": history.best_accuracy,
                    **{name: getattr(history, name) for name in ("seconds", "tokens", "epochs", "mode_gap")},
                },
                "evaluation": evaluation,
            }
        )


def evaluate_until_sure(
    model: nn.Module, task: Task, protocol: EvaluationProtocol, folder: RunFolder, watch: Watch | None
) -> dict[str, Any]:
    """One data set after another, until the interval of the accuracy is narrow enough; each is kept on disk."""
    split = task.splits["evaluation"]
    length, sequences = protocol.length or split.longest, protocol.sequences or split.sequences
    data_sets: list[dict[str, Any]] = []
    stopped = "all data sets"
    for seed in range(protocol.max_seeds):
        path = folder.path / f"evaluation-{seed}.json"
        found = read_json(path)
        if found is None or not _is_whole(found):  # not there, or of an older version
            start = time.monotonic()
            found = evaluate(
                model,
                task,
                seed=seed,
                sequences=sequences,
                length=length,
                rows=protocol.rows,
                chunk=protocol.chunk,
                watch=_watch_steps(watch, seed, start),
            )
            found["seconds"] = time.monotonic() - start
            write_json(path, found)
        data_sets.append(found)
        if seed + 1 >= protocol.min_seeds and all(
            enough_data([each[name] for each in data_sets], protocol.confidence, protocol.resamples)
            for name in ("average", "minimum")
        ):
            stopped = "sure"
            break
        if sum(each["seconds"] for each in data_sets) > protocol.hours * 3600:
            stopped = "time limit"
            break
    changes = sum(each["changes"] for each in data_sets)
    answers = [sum(counts) for counts in zip(*(each["answers"] for each in data_sets), strict=True)]
    return {
        "stopped": stopped,
        "length": length,
        "sequences": sequences * len(data_sets),
        "average": _interval([each["average"] for each in data_sets], protocol),
        "minimum": _interval([each["minimum"] for each in data_sets], protocol),
        "change": sum((each["change"] or 0) * each["changes"] for each in data_sets) / changes if changes else None,
        "changes": changes,
        "constant": max(answers) / max(1, sum(answers)),
        "expected_constant": task.expected_constant("evaluation", length),
        "by_sequence": {
            name: sum(each["by_sequence"][name] for each in data_sets) for name in data_sets[0]["by_sequence"]
        },
        "positions": _add_positions([each["positions"] for each in data_sets]),
        "data_sets": [
            {name: value for name, value in each.items() if name not in ("answers", "positions")} for each in data_sets
        ],
        "seconds": sum(each["seconds"] for each in data_sets),
    }


def _is_whole(found: dict[str, Any]) -> bool:
    """Whether all that is read of an evaluation is there."""
    numbers = all(isinstance(found.get(name), (int, float)) for name in ("average", "changes", "minimum", "seconds"))
    kinds: dict[str, Any] = {
        "answers": list,
        "by_sequence": dict,
        "positions": list,
        "change": (int, float, type(None)),
    }
    return numbers and all(name in found and isinstance(found[name], kind) for name, kind in kinds.items())


def _add_positions(data_sets: list[list[list[int]]]) -> list[list[int]]:
    """Buckets of the same steps, counted together."""
    return [
        [buckets[0][0], buckets[0][1], sum(each[2] for each in buckets), sum(each[3] for each in buckets)]
        for buckets in zip(*data_sets, strict=True)
    ]


def _interval(values: list[float], protocol: EvaluationProtocol) -> dict[str, float]:
    interval = bootstrap(values, protocol.confidence, protocol.resamples)
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def _watch_steps(watch: Watch | None, seed: int, start: float) -> Callable[[int, int], None] | None:
    if watch is None:
        return None

    def show(done: int, steps: int) -> None:
        speed = done / max(time.monotonic() - start, 1e-9)
        watch(Progress(done, done, steps, nan, nan, nan, speed, text=f"evaluating on data {seed + 1}"))

    return show
