"""What a figure depends on: the processor, the versions, the commit."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

PEERS = ("minmaxrnc", "mambapy", "minGRU-pytorch")


def processor_field(name: str) -> str:
    """A field of the first processor in /proc/cpuinfo, or an empty string."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.split(":")[0].strip() == name), "")


def available_memory() -> int:
    """Bytes that can be allocated without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no line MemAvailable")


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    """The commit of this checkout, with "+" if files differ from it, or "unknown"."""
    git = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL)
        changes = subprocess.check_output([*git, "status", "--porcelain"], text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("+" if changes.strip() else "")


def instruction_set() -> str:
    """The variant of our kernel that this processor runs, as far as the kernel tells."""
    try:
        from latchwork.ops.cpu import kernel

        return str(kernel.isa())
    except (ImportError, AttributeError, OSError, RuntimeError) as reason:
        return f"unknown: {reason}"


def describe(threads: int, peers: Sequence[str] = PEERS) -> dict[str, str | int]:
    """The machine, the versions of torch and of the rivals, and the commit."""
    return {
        "processor": processor_field("model name") or platform.machine(),
        "cores": os.cpu_count() or 0,
        "threads": threads,
        "load before": f"{os.getloadavg()[0]:.2f}",
        "kernel": instruction_set(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{peer: version(peer) for peer in peers},
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
    }
