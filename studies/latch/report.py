"""Write the tables of docs/latch.md from the records: `python studies/latch/report.py`; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from math import sqrt
from pathlib import Path

from latch_networks import LAYER
from latch_problems import CHOSEN_ON, PROBLEMS
from scipy import stats

from latchwork.files import read_json, read_text, write_text

ROOT = Path(__file__).parents[2]
PAGE, RESULTS, SPEED = ROOT / "docs" / "latch.md", ROOT / "results" / "latch", ROOT / "benchmarks/results/latch.json"
GOALS = {(64, 512): "1 x LSTM, 3 x GRU", (4, 4096): "2 x LSTM", (1, 16384): "8 x LSTM", (1, 1): "1 x LSTM"}


def cell(values: list[float]) -> str:
    """Mean and 95% interval over seeds (Student's t), in per cent.

    >>> cell([0.9, 0.9, 0.96])
    '92.0 ± 8.6 (3)'
    """
    if not values:
        return "-"
    mean = f"{100 * statistics.mean(values):.1f}"
    if len(values) == 1:
        return f"{mean} (1)"
    margin = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / sqrt(len(values))
    return f"{mean} ± {100 * margin:.1f} ({len(values)})"


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
        "| LSTM's width | parameters | what | (B, T) | threads | Latch | LSTM / Latch | GRU / Latch | goal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    whole = json.loads(read_text(path))
    for row in whole["rows"]:
        shape = tuple(row["shape"])
        start = f"| {row['hidden']} | {row['parameters']['latch']:,} | {row['what']} | {shape} | {row['threads']} | "
        if row["what"] == "memory":
            memory = {kind: each.get("extra MB", float("nan")) for kind, each in row["memory"].items()}
            found, lstm, gru, goal = f"{memory['latch']:.0f} MB", memory["lstm"] / memory["latch"], "-", "1 x LSTM"
        else:
            times = row["seconds"]
            found, lstm, goal = f"{1e3 * times['latch']:.3g} ms", times["lstm"] / times["latch"], GOALS[shape]
            gru = f"{times['gru'] / times['latch']:.2f}"
        lines.append(f"{start}{found} | {lstm:.2f} | {gru} | {goal} |")
    machine = whole["machine"]
    busy = f"with a load of {machine['load before']} on {machine['cores']} cores: measure again when it is idle"
    return [*lines, "", f"Measured on {machine['processor']}, {busy if float(machine['load before']) > 1 else 'idle'}."]


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
