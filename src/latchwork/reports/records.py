"""Records of runs, read from disk and grouped. No torch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latchwork.evaluation.statistics import Interval, bootstrap

Record = dict[str, Any]

CONFIDENCE = 0.99  # of the interval of an accuracy, as in the evaluation's protocol
TABLES = ("latching", "sequences", "induction_heads")  # in the paper's order; others follow, by name
NEEDED = {  # what a record must have to be reported
    "": ("experiment", "table", "task", "model", "scale", "batch_size", "seed", "parameters", "training", "evaluation"),
    "training": ("train_accuracy", "validation_accuracy", "seconds", "epochs"),
    "evaluation": ("length", "sequences", "average", "minimum", "change", "constant", "positions", "seconds"),
}


@dataclass(frozen=True)
class Group:
    """The runs of one experiment at one scale and batch size, one a seed, by seed."""

    experiment: str
    scale: str
    batch_size: int
    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        """Any of them, for what all have in common."""
        return self.records[0]

    @property
    def label(self) -> str:
        """The experiment without its task: the model, and how its training differs from others of that model."""
        return self.experiment.rsplit("/", 1)[-1]

    @property
    def accuracy(self) -> Interval:
        """Mean evaluation accuracy and its bootstrap interval: over seeds, or over the data sets of a single seed."""
        if len(self.records) == 1:
            average = self.first["evaluation"]["average"]
            return Interval(average["mean"], average["low"], average["high"])
        return bootstrap([each["evaluation"]["average"]["mean"] for each in self.records], CONFIDENCE)

    @property
    def perfect(self) -> bool:
        """Whether every answer of every seed was right."""
        return all(each["evaluation"]["average"]["mean"] == 1 for each in self.records)

    @property
    def converged(self) -> int:
        """The number of seeds that reached perfect validation accuracy."""
        return sum(each["training"]["validation_accuracy"] == 1 for each in self.records)

    @property
    def best(self) -> Record:
        """The run of the best validation accuracy."""
        return best_run(self.records)

    def values(self, *path: str) -> list[Any]:
        """What the records have at a path of keys, such as ("training", "seconds"); None is left out."""
        found: list[Any] = list(self.records)
        for key in path:
            found = [each[key] for each in found]
        return [each for each in found if each is not None]

    def mean(self, *path: str) -> float | None:
        """The mean of those values; None if there are none."""
        values = self.values(*path)
        return float(sum(values) / len(values)) if values else None


def read_records(folder: str | os.PathLike[str]) -> list[Record]:
    """Every record.json under a folder, in the order of their names; each gets "run", its folder seen from there."""
    root, records = Path(folder), []
    for path in sorted(root.rglob("record.json")):
        record = _read(path)
        records.append({**record, "run": path.parent.relative_to(root).as_posix()})
    seen: dict[tuple[Any, ...], str] = {}
    for record in records:
        key = tuple(record[name] for name in ("experiment", "scale", "batch_size", "seed"))
        if key in seen:
            raise ValueError(f"{root} holds the same run twice: {seen[key]} and {record['run']}")
        seen[key] = record["run"]
    return records


def group_records(records: Iterable[Record]) -> list[Group]:
    """One group for each experiment, scale and batch size; tables and tasks in the paper's order, MinMax first."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["experiment"], record["scale"], record["batch_size"]), []).append(record)
    made = [Group(*key, tuple(sorted(found, key=lambda each: each["seed"]))) for key, found in groups.items()]
    return sorted(made, key=_order)


def best_run(records: Sequence[Record]) -> Record:
    """The run of the best validation accuracy, the first of them by batch size and seed."""
    return min(
        records,
        key=lambda each: (-each["training"]["validation_accuracy"], each["batch_size"], each["seed"]),
    )


def best_runs(records: Iterable[Record]) -> dict[str, Record]:
    """For each experiment its best run, whatever the scale and batch size."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["experiment"], []).append(record)
    return {name: best_run(runs) for name, runs in found.items()}


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts numbers inside words by their value.

    >>> sorted(["latching(16)", "latching(4)"], key=natural)
    ['latching(4)', 'latching(16)']
    """
    return [(0, int(each), "") if each.isdigit() else (1, 0, each) for each in re.split(r"(\d+)", text) if each]


def _order(group: Group) -> tuple[Any, ...]:
    table = group.first["table"]
    place = TABLES.index(table) if table in TABLES else len(TABLES)
    task, model = natural(group.first["task"]), group.first["model"]
    return place, table, task, not model.startswith("minmax"), natural(group.experiment), group.scale, group.batch_size


def _read(path: Path) -> Record:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    for part, names in NEEDED.items():
        values = record.get(part) if part and isinstance(record, dict) else record
        if not isinstance(values, dict):
            raise ValueError(f"{path} must hold a JSON object{f' as {part!r}' if part else ''}; got {values!r:.40}")
        if missing := [name for name in names if name not in values]:
            raise ValueError(f"{path} is not the record of a run: {part or 'it'} has no {', '.join(missing)}")
    return dict(record)
