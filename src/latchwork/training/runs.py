"""What runs a folder holds, and how far each is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latchwork.files import read_json
from latchwork.run_lock import is_locked
from latchwork.training.checkpoint import NOTE, steps_of


@dataclass(frozen=True)
class RunState:
    """A run: its folder seen from where it was looked for, its plan, its state, steps done, and its result in words."""

    name: str
    plan: str
    state: str
    step: int
    result: str


def list_runs(folder: str | os.PathLike[str]) -> list[RunState]:
    """Every run in a folder and the folders in it, by name."""
    root = Path(folder)
    if not root.is_dir():
        raise NotADirectoryError(f"{root} must be a folder with runs")
    return [_look(path.parent, root) for path in sorted(root.rglob("manifest.json")) if _is_run(path)]


def _is_run(path: Path) -> bool:
    """A corpus has a manifest.json too, without a config that names a plan."""
    try:
        return "plan" in (read_json(path) or {}).get("config", {})
    except (OSError, ValueError, TypeError):
        return False


def _look(folder: Path, root: Path) -> RunState:
    name = folder.relative_to(root).as_posix() if folder != root else folder.name
    plan = str((read_json(folder / "manifest.json") or {})["config"]["plan"])
    record = read_json(folder / "record.json")
    if record is not None:
        return RunState(name, plan, "finished", int(record.get("step", 0)), describe_result(record))
    step = max(steps_of(folder / "checkpoints"), default=0)
    place = read_json(folder / "checkpoints" / f"{step:08d}" / NOTE) or {}
    return RunState(name, plan, "running" if is_locked(folder) else "stopped", step, str(place.get("stopped") or ""))


def describe_result(record: dict[str, Any]) -> str:
    """The result of a finished run in a few words."""
    if "evaluation" in record:
        evaluation, training = record["evaluation"], record["training"]
        accuracy = f"accuracy {100 * evaluation['average']['mean']:.2f}% at {evaluation['length']:,} steps"
        return f"{accuracy}, {100 * training['validation_accuracy']:.2f}% in validation"
    if "validation" in record:
        return f"validation loss {record['validation']['mean']:.4f} ± {record['validation']['margin']:.4f}"
    return str(record.get("stopped", ""))
