"""A job of a study: a config that decides what it comes to, and one small file of JSON when it is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from latchwork.differences import differences, summary
from latchwork.files import finite_values, read_json, write_json
from latchwork.training.manifest import manifest

Record = dict[str, Any]


def run_job(path: Path, config: Record, work: Callable[[], Record]) -> Record | None:
    """The record at `path`: what is there, or what `work` gives, with its config, versions and commit.

    None: another process is at it. Its lock ends with it, so a job that was killed is run again. A record of another
    config is an error.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    try:
        with FileLock(lock, timeout=0):
            if (found := read_json(path)) is not None:
                if lines := differences(found["config"], finite_values(config), "config"):
                    raise ValueError(f"{path} is of another config: {summary(lines)}. Choose another folder")
                return found
            record = {**manifest(config), **work()}
            write_json(path, record)
            lock.unlink(missing_ok=True)  # a process that waits for it, or makes it again, finds the record
            return record
    except Timeout:
        return None
