"""Run one experiment for one seed: train, evaluate, leave a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from latchwork.evaluation.accuracy import measure
from latchwork.evaluation.statistics import bootstrap, enough_data
from latchwork.evaluation.streaming import evaluate
from latchwork.experiments.experiment import Experiment
from latchwork.files import read_json, write_json
from latchwork.tasks import Task, make_task
from latchwork.training.folder import RunFolder
from latchwork.training.loop import Progress, Watch, train
from latchwork.training.manifest import manifest
from latchwork.training.protocol import EvaluationProtocol, Scale
from latchwork.training.seeds import seed_everything
from latchwork.training.trainer import TRAINERS

SEEDS = ("min_seeds", "max_seeds", "confidence", "margin", "hours")
TRAIN_SAMPLE = 1000  # training sequences on which the best weights are measured once more


def run_folder(out: Path, scale: str, experiment: Experiment, batch_size: int, seed: int) -> Path:
    """Where a run lives."""
    return out / scale / experiment.name / f"batch{batch_size}-seed{seed}"


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
    """Run, or go on, or return the record if it is finished.

    One thread by default: two runs side by side use two cores better than one run does, and sums come out the same.
    """
    folder = RunFolder(run_folder(out, scale.name, experiment, batch_size, seed))
    config: dict[str, Any] = {
        "experiment": asdict(experiment),
        "scale": asdict(scale),
        "batch_size": batch_size,
        "seed": seed,
        "threads": threads,
        "device": device,
    }
    for name in SEEDS:
        del config["scale"]["training"][name]  # how many more runs there are does not change this one
    if (found := read_json(folder.record)) is not None:
        return found
    torch.set_num_threads(threads)
    description = manifest(config)
    folder.begin(description)
    task, trainer = make_task(experiment.task), TRAINERS[experiment.trainer]
    seed_everything(seed)
    model = experiment.make_model(task.vocabulary).to(device)
    weights, training_file = folder.path / "best.safetensors", folder.path / "training.json"
    training = read_json(training_file)
    if training is None:
        place = train(
            model,
            task,
            trainer=trainer,
            batch_size=batch_size,
            protocol=scale.training,
            seed=seed,
            folder=folder,
            watch=watch,
            seconds_left=seconds_left,
        )
        rows = min(TRAIN_SAMPLE, scale.training.sequences or TRAIN_SAMPLE)
        training = {
            "stopped": place.stopped,
            "best_epoch": place.best_epoch,
            "train_accuracy": measure(model, task.sample("train", seed, rows)).accuracy,
            "validation_accuracy": place.best_accuracy,
            "seconds": place.seconds,
            "tokens": place.tokens,
            "epochs": place.epochs,
        }
        temporary = weights.with_suffix(".tmp")
        save_file({name: value.clone() for name, value in model.state_dict().items()}, temporary)
        temporary.replace(weights)
        write_json(training_file, training)
    model.load_state_dict(load_file(weights, device))
    evaluation = evaluate_until_sure(model, task, scale.evaluation, folder, watch)
    record = {
        "experiment": experiment.name,
        "table": experiment.table,
        "task": experiment.task,
        "model": experiment.model,
        "trainer": experiment.trainer,
        "n_layers": experiment.n_layers,
        "changes": dict(experiment.changes),
        "published": experiment.published,
        "converged": experiment.converged,
        "scale": scale.name,
        "batch_size": batch_size,
        "seed": seed,
        "parameters": sum(each.numel() for each in model.parameters() if each.requires_grad),
        "vocabulary": task.vocabulary,
        "training": training,
        "evaluation": evaluation,
        "manifest": {name: value for name, value in description.items() if name != "config"},
    }
    folder.finish(record)
    return record


def evaluate_until_sure(
    model: nn.Module, task: Task, protocol: EvaluationProtocol, folder: RunFolder, watch: Watch | None
) -> dict[str, Any]:
    """One data set after another, until the interval of the accuracy is narrow enough; each is kept on disk."""
    split = task.splits["evaluation"]
    length, sequences = protocol.length or split.longest, protocol.sequences or split.sequences
    data_sets: list[dict[str, Any]] = []
    for seed in range(protocol.max_seeds):
        path = folder.path / f"evaluation-{seed}.json"
        found = read_json(path)
        if found is None:
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
            break
        if sum(each["seconds"] for each in data_sets) > protocol.hours * 3600:
            break
    changes = sum(each["changes"] for each in data_sets)
    return {
        "length": length,
        "sequences": sequences * len(data_sets),
        "average": _interval([each["average"] for each in data_sets], protocol),
        "minimum": _interval([each["minimum"] for each in data_sets], protocol),
        "change": sum((each["change"] or 0) * each["changes"] for each in data_sets) / changes if changes else None,
        "changes": changes,
        "constant": task.expected_constant("evaluation", length),
        "positions": _add_positions([each["positions"] for each in data_sets]),
        "data_sets": [{name: value for name, value in each.items() if name != "positions"} for each in data_sets],
        "seconds": sum(each["seconds"] for each in data_sets),
    }


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
        watch(Progress(seed, seed + 1, done, steps, float("nan"), None, speed, text="evaluating"))

    return show
