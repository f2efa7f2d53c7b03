"""Where runs run: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from latchwork.experiments.worker import work
from latchwork.files import read_json

RETRIES = 3  # of a run whose process was killed; it goes on from its checkpoint

Job = Mapping[str, Any]


class Pool(Protocol):
    """Takes jobs; each becomes a record, in time."""

    def submit(self, job: Job, folder: Path) -> Future[dict[str, Any]]:
        """Run the job, now or when there is room. folder: where its record will be."""

    def close(self) -> None:
        """Start nothing more."""


class Processes:
    """At most `size` processes at a time, each running one job.

    A process that is killed is started again, up to RETRIES times. One that ends with an error is not: it would again.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"jobs must be at least 1; got {size}")
        self._threads = ThreadPoolExecutor(size)
        self._running: set[subprocess.Popen[str]] = set()
        self._closed = False

    def submit(self, job: Job, folder: Path) -> Future[dict[str, Any]]:
        """Run the job, now or when there is room."""
        return self._threads.submit(self._run, job, folder)

    def _run(self, job: Job, folder: Path) -> dict[str, Any]:
        for _ in range(1 + RETRIES):
            if self._closed:
                break
            process = subprocess.Popen(
                [sys.executable, "-m", "latchwork.experiments.worker", json.dumps(job)],
                stderr=subprocess.PIPE,
                text=True,
            )
            self._running.add(process)
            _, errors = process.communicate()
            self._running.discard(process)
            if process.returncode == 0:
                record = read_json(folder / "record.json")
                assert record is not None, f"{folder} has no record"
                return record
            if process.returncode > 0:
                raise RuntimeError(f"{folder} failed:\n{errors.strip()}")
        raise RuntimeError(f"{folder}: its process was killed {1 + RETRIES} times")

    def close(self) -> None:
        """Stop what runs: it goes on from its checkpoint when asked for again."""
        self._closed = True
        for process in list(self._running):
            process.terminate()
        self._threads.shutdown(cancel_futures=True)


class Ray:
    """One task of a Ray cluster for each run, on a disk that all machines share. address: as `ray.init` takes it.

    A task whose worker dies is started again elsewhere, and goes on from its checkpoint.
    """

    def __init__(self, address: str | None, cpus: int, gpus: float) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("Ray is missing: pip install 'latchwork[ray]'") from error
        self._own = not ray.is_initialized()
        if self._own:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(work)
        self._ray = ray

    def submit(self, job: Job, folder: Path) -> Future[dict[str, Any]]:
        """Hand the job to the cluster."""
        future: Future[dict[str, Any]] = self._task.remote(dict(job)).future()
        return future

    def close(self) -> None:
        """Leave the cluster, if it was joined here."""
        if self._own:
            self._ray.shutdown()
