"""Records of runs, read from disk and grouped. No torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latchwork.evaluation.statistics import FEW, Interval, accuracy_interval, wilson
from latchwork.files import read_json

Record = dict[str, Any]

ENDS = ("perfect", "all epochs", "no improvement", "sure", "all data sets")  # of a run that was not cut short
TABLES = ("latching", "sequences", "induction_heads")  # in the paper's order; others follow, by name
TEXT, SHARE, WHOLE, NUMBER = "text", "a number from 0 to 1", "a whole number of at least 0", "a number"
# What a record must have to be reported. A ? marks what may be missing or null; a list holds any number of its item.
SHAPE: dict[str, Any] = {
    **dict.fromkeys(("experiment", "table", "task", "model", "scale"), TEXT),
    **dict.fromkeys(("batch_size", "seed", "parameters"), WHOLE),
    "training": {
        "stopped?": TEXT,
        **dict.fromkeys(("train_accuracy", "validation_accuracy"), SHARE),
        "seconds": NUMBER,
        "epochs": [{"loss?": NUMBER, "validation_accuracy": SHARE}],
    },
    "evaluation": {
        "stopped?": TEXT,
        **dict.fromkeys(("length", "sequences"), WHOLE),
        "average": {"mean": SHARE},
        "minimum": {"mean": SHARE},
        **dict.fromkeys(("change?", "constant", "expected_constant?"), SHARE),
        "by_sequence?": dict.fromkeys(("asked", "right", "asked_asked", "asked_right", "right_right"), WHOLE),
        "positions": [[WHOLE]],
        "shorter?": [[WHOLE]],
        "seconds": NUMBER,
    },
    "published?": [NUMBER],
    "converged?": [WHOLE],
    "changes?": {},
    "manifest?": {"versions?": {}, "hardware?": {}},
}
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
LARGEST = 1 << 100  # of whole numbers


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
    def accuracies(self) -> list[float]:
        """The evaluation accuracy of each seed."""
        return self.values("evaluation", "average", "mean")

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of a single seed's accuracy; None of several seeds, and of fewer than FEW sequences.

        Of a record that does not say how its sequences differ, each sequence counts as one answer: the interval is
        then as wide as it can be.
        """
        evaluation = self.first["evaluation"]
        sequences, mean = evaluation["sequences"], evaluation["average"]["mean"]
        if len(self.records) > 1 or sequences < FEW:
            return None
        if "by_sequence" in evaluation:
            return accuracy_interval(evaluation["by_sequence"], sequences)
        return Interval(mean, *wilson(mean * sequences, sequences))

    @property
    def constant_is_expected(self) -> bool:
        """Whether a record holds what to expect of the best constant answer, and not what it scores on its data."""
        return any("expected_constant" not in each["evaluation"] for each in self.records)

    @property
    def stopped(self) -> str:
        """What was cut short, and how often; empty if training and evaluation of every seed ran to their end."""
        reasons = [
            f"{part} stopped: {each[part]['stopped']}"
            for part in ("training", "evaluation")
            for each in self.records
            if each[part].get("stopped") not in (None, *ENDS)
        ]
        many = len(self.records) > 1
        counts = {reason: f" ({reasons.count(reason)} of {len(self.records)} seeds)" * many for reason in reasons}
        return ", ".join(reason + count for reason, count in counts.items())

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

    @property
    def positions(self) -> list[list[list[int]]]:
        """For each seed, the answers by position: first step, step after the last, asked for, right.

        Where they are asked for at the end only, shorter sequences say what happens at their ends.
        """
        return [
            [
                *([length - 1, length, asked, right] for length, asked, right in each.get("shorter") or []),
                *each["positions"],
            ]
            for each in (record["evaluation"] for record in self.records)
        ]

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
    """Every record.json of an experiment under a folder, in the order of their names.

    Each gets "run", its folder seen from there, and of an experiment of the paper "published" and "converged", what
    the paper reports for it.
    """
    root, records = Path(folder), []
    for path in sorted(root.rglob("record.json")):
        record = _read(path)
        place = _clean(path.parent.relative_to(root).as_posix())
        records.append({**record, **_published(record["experiment"]), "run": place})
    seen: dict[tuple[Any, ...], str] = {}
    for record in records:
        key = tuple(record[name] for name in ("experiment", "scale", "batch_size", "seed"))
        if key in seen:
            raise ValueError(f"{root} holds the same run twice: {seen[key]} and {record['run']}")
        seen[key] = record["run"]
    return records


def _published(name: str) -> Record:
    """What the paper reports for an experiment; nothing for one that it does not have."""
    from latchwork.experiments.paper import EXPERIMENTS

    found = EXPERIMENTS.get(name)
    if found is None:
        return {}
    values = {"published": found.published, "converged": found.converged}
    return {key: None if value is None else list(value) for key, value in values.items()}


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


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key that sorts numbers inside words by their value.

    >>> sorted(["latching(16)", "latching(4)"], key=natural)
    ['latching(4)', 'latching(16)']
    """
    words = re.split(r"([0-9]{1,18})", text)
    return [(1, 0, each) if place % 2 == 0 else (0, int(each), "") for place, each in enumerate(words) if each]


def _order(group: Group) -> tuple[Any, ...]:
    table = group.first["table"]
    place = TABLES.index(table) if table in TABLES else len(TABLES)
    task, model = natural(group.first["task"]), group.first["model"]
    return place, table, task, not model.startswith("minmax"), natural(group.experiment), group.scale, group.batch_size


def _read(path: Path) -> Record:
    record: Record = _clean(read_json(path) or {})
    try:
        _check(record, SHAPE, "")
        for row in record["evaluation"]["positions"]:
            if not (len(row) == 4 and row[0] < row[1] and row[3] <= row[2] > 0):
                what = "a step, a later one, the answers asked for, at least one, and the right ones"
                raise ValueError(f"evaluation.positions must be rows of {what}; got {row!r:.60}")
        for name in ("published", "converged"):
            if record.get(name) is not None and len(record[name]) != 2:
                raise ValueError(f"{name} must be two numbers; got {record[name]!r:.40}")
        for row in record["evaluation"].get("shorter") or []:
            if len(row) != 3 or not 0 <= row[2] <= row[1] or not row[0] or not row[1]:
                raise ValueError(
                    f"evaluation.shorter must be rows of steps, answers asked for and right ones; got {row!r:.60}"
                )
        if not record["evaluation"]["positions"] or not record["evaluation"]["length"]:
            raise ValueError("evaluation must have a length and positions")
        if record.get("converged") is not None and not record["converged"][0] <= record["converged"][1] != 0:
            raise ValueError(f"converged must be seeds, of all that were run; got {record['converged']}")
    except ValueError as error:
        raise ValueError(f"{path} is not the record of a run: {error}") from None
    return record


def _check(value: Any, shape: Any, where: str) -> None:
    """Raise an error that names the first field that is not of its shape."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where or 'it'} must be a JSON object; got {value!r:.40}")
        if missing := [name for name in shape if not name.endswith("?") and name not in value]:
            raise ValueError(f"{where or 'it'} has no {', '.join(missing)}")
        for name, inner in shape.items():
            if not name.endswith("?") or value.get(name[:-1]) is not None:
                _check(value[name.rstrip("?")], inner, f"{where}.{name.rstrip('?')}".strip("."))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list; got {value!r:.40}")
        for place, each in enumerate(value):
            _check(each, shape[0], f"{where}[{place}]")
    elif not _is(value, shape):
        raise ValueError(f"{where} must be {shape}; got {value!r:.40}")


def _is(value: Any, kind: str) -> bool:
    if kind == TEXT:
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if isinstance(value, int) and abs(value) > LARGEST:
        return False
    if kind == WHOLE:
        return isinstance(value, int) and value >= 0
    return kind == NUMBER or 0 <= value <= 1


def _clean(value: Any) -> Any:
    """The values, whose texts can be written to any file: no control characters, no halves of characters."""
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", value) if isinstance(value, str) else value
