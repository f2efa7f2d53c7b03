"""Write the tables of docs/latch.md from the records: `python studies/latch/report.py`; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from math import sqrt
from pathlib import Path
from typing import Any

from latch_networks import LAYER
from latch_problems import CHOSEN_ON, PROBLEMS
from scipy import stats

from latchwork.files import read_json, read_text, write_text

ROOT = Path(__file__).parents[2]
PAGE, RESULTS, SPEED = ROOT / "docs" / "latch.md", ROOT / "results" / "latch", ROOT / "benchmarks/results/latch.json"
GOALS = {  # how many times as fast as which layer
    (64, 512): {"lstm": 1, "gru": 3},
    (4, 4096): {"lstm": 2},
    (1, 16384): {"lstm": 8},
    (1, 1): {"lstm": 1},
}
ENOUGH = 5  # seeds for an interval: of two or three, Student's t makes one that says nothing


def cell(values: list[float]) -> str:
    """Mean and 95% interval over seeds (Student's t), in per cent; of fewer than five seeds, lowest and highest.

    >>> cell([0.9, 0.9, 0.96]), cell([0.9, 0.9, 0.92, 0.9, 0.96])
    ('92.0, 90.0 to 96.0 (3)', '91.6 ± 3.2 (5)')
    """
    if not values:
        return "-"
    count, mean = len(values), f"{100 * statistics.mean(values):.1f}"
    if count == 1:
        return f"{mean} (1)"
    if count < ENOUGH:
        return f"{mean}, {100 * min(values):.1f} to {100 * max(values):.1f} ({count})"
    margin = float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(values) / sqrt(count)
    return f"{mean} ± {100 * margin:.1f} ({count})"


def accuracy_table(folder: Path) -> list[str]:
    """One line a data set, one column a network; the number of seeds in brackets."""
    lines = [f"| data | seconds | {' | '.join(LAYER)} |", "|---" * (2 + len(LAYER)) + "|"]
    for name in PROBLEMS:
        found: dict[str, list[float]] = {}
        seconds: set[float] = set()
        for kind in LAYER:
            records = [read_json(path) or {} for path in sorted((folder / name / kind).glob("*.json"))]
            found[kind] = [record["accuracy"] for record in records]
            seconds |= {record["seconds"] for record in records}
        spent = ", ".join(f"{each:g}" for each in sorted(seconds)) or "-"
        mark = " *" if name in CHOSEN_ON else ""
        lines.append(f"| {name}{mark} | {spent} | {' | '.join(cell(found[kind]) for kind in LAYER)} |")
    return lines


def choice_table(path: Path) -> list[str]:
    """One line a variant, one column a set."""
    runs = (read_json(path) or {}).get("runs", [])
    sets, variants = (list(dict.fromkeys(run[key] for run in runs)) for key in ("set", "variant"))
    found = {(run["variant"], run["set"]): f"{100 * run['accuracy']:.1f}" for run in runs}
    lines = [f"| variant | {' | '.join(sets)} |", "|---" * (1 + len(sets)) + "|"]
    return [*lines, *(f"| {each} | {' | '.join(found.get((each, name), '-') for name in sets)} |" for each in variants)]


def speed_table(path: Path) -> list[str]:
    """Milliseconds and ratios."""
    if not path.exists():
        return ["No figures are recorded yet: `python benchmarks/latch.py`."]
    lines = [
        "| LSTM's width | parameters | what | (B, T) | threads | Latch | LSTM / Latch | GRU / Latch | goal | reached |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    whole = json.loads(read_text(path))
    for row in whole["rows"]:
        shape, goals = tuple(row["shape"]), GOALS[tuple(row["shape"])]
        start = f"| {row['hidden']} | {row['parameters']['latch']:,} | {row['what']} | {shape} | {row['threads']} | "
        if row["what"] == "memory":
            found, goals = (
                {kind: each.get("extra MB", float("nan")) for kind, each in row["memory"].items()},
                {"lstm": 1},
            )
            own = f"{found['latch']:.0f} MB"
        else:
            found, own = row["seconds"], f"{1e3 * row['seconds']['latch']:.3g} ms"
        ratios = {kind: found[kind] / found["latch"] for kind in ("lstm", "gru") if kind in found}
        goal = ", ".join(f"{value} x {kind.upper()}" for kind, value in goals.items())
        reached = "yes" if all(ratios[kind] >= value for kind, value in goals.items()) else "no"
        cells = [f"{ratios[kind]:.2f}" if kind in ratios else "-" for kind in ("lstm", "gru")]
        lines.append(f"{start}{own} | {' | '.join(cells)} | {goal} | {reached} |")
    needed = [line for row in whole["rows"] if row["threads"] == 1 for line in operations(row)]
    machine, loads = whole["machine"], [row["load"] for row in whole["rows"]]
    busy = f"with a load of {min(loads):g} to {max(loads):g} on {machine['cores']} cores"
    busy += ": measure again when it is idle" if max(loads) > machine["cores"] else ""
    most = f"- torch's own product of large matrices computes {whole['product of large matrices']:.0f} on one thread."
    where = f"Measured on {machine['processor']}, {busy if max(loads) > 1 else 'idle'}."
    return [*lines, "", where, "", *needed, most]


def operations(row: dict[str, Any]) -> list[str]:
    """What the goal of one long sequence asks of a processor: 6 multiplications and additions a parameter and step."""
    if row["what"] != "forward, backward" or tuple(row["shape"]) != (1, 16384):
        return []
    work, goal = 6 * row["parameters"]["latch"] * 16384 / 1e9, GOALS[1, 16384]["lstm"]
    need, found = work * goal / row["seconds"]["lstm"], work / row["seconds"]["latch"]
    return [
        f"- LSTM of width {row['hidden']}, (1, 16384), one thread: {goal} times its speed would be {need:.0f} billion "
        f"operations a second in matrix products alone. Latch computes {found:.0f}."
    ]


def fill(page: str, name: str, lines: list[str]) -> str:
    """The page with what stands between the two marks of this name replaced."""
    begin, end = f"<!-- {name}: written by studies/latch/report.py -->", f"<!-- end of {name} -->"
    before, rest = page.split(begin)
    return before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1]


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = read_text(PAGE)
    new = fill(fill(page, "accuracy", accuracy_table(RESULTS)), "speed", speed_table(SPEED))
    new = fill(new, "choice", choice_table(RESULTS / "choice.json"))
    if options.check:
        return int(new != page)
    write_text(PAGE, new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
