"""Where runs run: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from latchwork.experiments.worker import work
from latchwork.extras import optional
from latchwork.files import read_json

RETRIES = 3  # of a run whose process was killed; it resumes from its checkpoint
GRACE = 30.0  # seconds that a run has to save when it is to stop

Job = Mapping[str, Any]


class Pool(Protocol):
    """Takes jobs; each becomes a record, in time."""

    def submit(self, job: Job, folder: Path) -> Future[dict[str, Any]]:
        """Run the job, now or when there is room. folder: where its record will be."""

    def close(self) -> None:
        """Start nothing more; let what runs save, and stop it."""


class Processes:
    """At most `size` processes at a time, each running one job.

    A process that is killed is started again, up to RETRIES times. One that ends with an error is not: it would again.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"jobs must be at least 1; got {size}")
        self._threads = ThreadPoolExecutor(size)
        self._running: set[subprocess.Popen[str]] = set()
        self._closed, self._lock = False, threading.Lock()

    def submit(self, job: Job, folder: Path) -> Future[dict[str, Any]]:
        """Run the job, now or when there is room."""
        return self._threads.submit(self._run, job, folder)

    def _run(self, job: Job, folder: Path) -> dict[str, Any]:
        for _ in range(1 + RETRIES):
            with self._start(job) as process:
                assert process.stderr is not None
                errors = process.stderr.read()  # until it ends; its stdin stays open: see worker.py
                code = process.wait()
            self._running.discard(process)
            if code == 0:
                record = read_json(folder / "record.json")
                assert record is not None, f"{folder} has no record"
                return record
            if 0 < code < 128:
                raise RuntimeError(errors.strip() or f"{folder}: its process ended with the code {code}")
        raise RuntimeError(f"{folder}: its process was killed {1 + RETRIES} times")

    def _start(self, job: Job) -> subprocess.Popen[str]:
        with self._lock:  # or close() would not see it
            if self._closed:
                raise RuntimeError("the sweep was stopped")
            process = subprocess.Popen(
                [sys.executable, "-m", "latchwork.experiments.worker"],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._running.add(process)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended already, and its exit code says why
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        return process

    def close(self) -> None:
        """Let what runs save, and stop it: it resumes from its checkpoint when asked for again."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
        self._threads.shutdown(cancel_futures=True)


class Ray:
    """One task of a Ray cluster for each run, on a disk that all machines share. address: as `ray.init` takes it.

    A task whose worker dies is started again elsewhere, and resumes from its checkpoint.
    """

    def __init__(self, address: str | None, cpus: int, gpus: float) -> None:
        ray = optional("ray", "ray")
        self._own = not ray.is_initialized()
        if self._own:
            handler = signal.getsignal(signal.SIGTERM)
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray's own exits without a word
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(work)
        self._ray, self._submitted = ray, list[Any]()

    def submit(self, job: Job, folder: Path) -> Future[dict[str, Any]]:
        """Hand the job to the cluster."""
        self._submitted.append(self._task.remote(dict(job)))
        future: Future[dict[str, Any]] = self._submitted[-1].future()
        return future

    def close(self) -> None:
        """Let what runs save, and stop it; leave the cluster, if it was joined here."""
        if self._submitted:
            _, running = self._ray.wait(self._submitted, num_returns=len(self._submitted), timeout=0)
            for each in running:
                self._ray.cancel(each, force=False)  # a KeyboardInterrupt for the task
            if running:
                self._ray.wait(running, num_returns=len(running), timeout=GRACE)
        if self._own:
            self._ray.shutdown()
