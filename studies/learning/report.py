"""Writes the tables of studies/learning/README.md from the records: python studies/learning/report.py"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from latchwork.files import write_text
from latchwork.reports.markdown import between

MARKS = "<!-- tables: written by report.py -->", "<!-- end of tables -->"
RECORDS = Path(__file__).parents[2] / "results" / "learning"


def table(folder: Path = RECORDS) -> str:
    """One row a problem: seeds that were proved, and medians over all seeds; where those that failed ended."""
    lines = [
        "| problem | places | proved | units left | steps | seconds | not proved |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in sorted(folder.glob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        proved = [each for each in records if each["proved"]]
        units = f"{median(each['units'] for each in proved):g}" if proved else "–"
        failed = "; ".join(
            f"seed {each['seed']}: {each['result'] or 'not learnt'} at length {each['length']}, {each['seconds']:.0f} s"
            for each in records
            if not each["proved"]
        )
        steps, seconds = (median(each[key] for each in records) for key in ("steps", "seconds"))
        lines.append(
            f"| {records[0]['name']} | {records[0]['degree']} | {len(proved)}/{len(records)} | {units} | "
            f"{steps:g} | {seconds:.0f} | {failed} |"
        )
    return "\n".join(lines)


def starts(folder: Path = RECORDS) -> str:
    """One row a problem and start: what why.py found."""
    lines = [
        "| problem | start | learnt | steps | length | wrong at 4, 8, 16, 40 letters | places | states of a unit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in (folder / "start" / "why.jsonl").read_text().splitlines():
        each = json.loads(line)
        wrong = ", ".join(f"{each['wrong_by_length'][length]:.1%}" for length in ("4", "8", "16", "40"))
        states = each["states_of_a_unit"]
        lines.append(
            f"| {each['name']} | {each['start']} | {'yes' if each['stopped'] == 'learnt' else 'no'} | "
            f"{each['steps']} | {each['length']} | {wrong} | {each['places']} | "
            f"median {median(states):g}, most {max(states)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    page = Path(__file__).parent / "README.md"
    write_text(page, between(MARKS, page.read_text(), table() + "\n\n" + starts()))
