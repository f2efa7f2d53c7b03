"""The table of studies/learning from its records: python studies/learning/report.py"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

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
            f"seed {each['seed']}: {each['result'] or 'not learnt'} at length {each['length']} after {each['seconds']:.0f} s"
            for each in records
            if not each["proved"]
        )
        lines.append(
            f"| {records[0]['name']} | {records[0]['degree']} | {len(proved)}/{len(records)} | {units} | "
            f"{median(each['steps'] for each in records):g} | {median(each['seconds'] for each in records):.0f} | {failed} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
