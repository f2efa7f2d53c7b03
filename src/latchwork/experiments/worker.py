"""One run in a process of its own: `python -m latchwork.experiments.worker`, as a sweep starts it.

It reads the job from stdin, one line of JSON. Then stdin stays open for as long as the sweep lives: when it ends,
however it ends, the worker saves and stops. Ctrl-C is for the sweep, which stops its workers by SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latchwork.config_reader import read_values
from latchwork.errors import explain
from latchwork.experiments.experiment import Experiment
from latchwork.experiments.run import run, run_folder
from latchwork.files import write_json
from latchwork.signals import exit_code, stop_at_once
from latchwork.training.display import line
from latchwork.training.engine import Progress, Watch
from latchwork.training.protocol import Scale

PROGRESS = "progress.json"  # in the run's folder: what the sweep's display reads


def work(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run what the job says; its values are plain, so that it travels as JSON."""
    experiment, scale = read_values(Experiment, job["experiment"]), read_values(Scale, job["scale"])
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
            write_json(path, {"process": os.getpid(), **vars(progress), "line": line(progress)})
            written = now

    return watch


def _stop_with_sweep() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Work on the job that stdin says; the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_with_sweep, daemon=True).start()
    try:
        with stop_at_once():
            work(job)
    except KeyboardInterrupt as error:
        return exit_code(error)
    except Exception as error:
        message, code = explain(error)
        print(message, file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
