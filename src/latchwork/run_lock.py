"""One process at a time in the folder of a run."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from latchwork.files import write_text

LOCK, HOLDER = ".lock", ".lock.holder"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, or raise BlockingIOError, which names the process that holds it.

    The operating system lets go of the lock when its process ends, however it ends: none is ever stale.
    """
    lock, holder = FileLock(folder / LOCK), folder / HOLDER
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise BlockingIOError(
            f"{folder} is in use by {_name(holder)}: wait until it ends, or choose another folder"
        ) from None
    try:
        write_text(holder, json.dumps({"process": os.getpid(), "host": socket.gethostname()}) + "\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a process holds the folder's lock."""
    if not (folder / LOCK).exists():
        return False
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    lock.release()
    return False


def _name(holder: Path) -> str:
    try:
        found = json.loads(holder.read_text())
        return f"process {found['process']} on {found['host']}"
    except (OSError, ValueError, TypeError, KeyError):  # it has not been written yet
        return "another process"
