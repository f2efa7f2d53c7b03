"""One run in a process of its own: `python -m latchwork.experiments.worker JOB`, as a sweep starts it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latchwork.experiments.experiment import Experiment
from latchwork.experiments.run import run, run_folder
from latchwork.files import write_json
from latchwork.training.loop import Progress, Watch
from latchwork.training.protocol import EvaluationProtocol, Scale, TrainingProtocol

PROGRESS = "progress.json"  # in the run's folder: what the sweep's display reads


def scale_from(values: Mapping[str, Any]) -> Scale:
    """A Scale from the plain values of `dataclasses.asdict`."""
    return Scale(
        name=values["name"],
        training=TrainingProtocol(**values["training"]),
        evaluation=EvaluationProtocol(**values["evaluation"]),
    )


def work(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run what the job says; its values are plain, so that it travels as JSON."""
    experiment, scale = Experiment(**job["experiment"]), scale_from(job["scale"])
    out = Path(job["out"])
    folder = run_folder(out, scale.name, experiment, job["batch_size"], job["seed"])
    return run(
        experiment,
        scale,
        batch_size=job["batch_size"],
        seed=job["seed"],
        out=out,
        threads=job["threads"],
        device=job["device"],
        seconds_left=job["seconds_left"],
        watch=_write_progress(folder / PROGRESS),
    )


def _write_progress(path: Path) -> Watch:
    written = 0.0

    def watch(progress: Progress) -> None:
        nonlocal written
        if (now := time.monotonic()) - written > 0.5:
            write_json(path, {"process": os.getpid(), **vars(progress)})
            written = now

    return watch


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
