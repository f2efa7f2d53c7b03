"""Writes the figures of benchmarks/results/scan.json into the README, between its two marks."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BEGIN, END = "<!-- figures: written by benchmarks/figures.py -->", "<!-- end of figures -->"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.3g}"


def speed(record: dict[str, Any]) -> str:
    """A row a contender, a column a shape: forward / forward+backward in ms, 1 thread."""
    rows = [row for row in record["speed"] if row["threads"] == 1]
    shapes = list(dict.fromkeys(str(tuple(row["shape"])) for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        times = [milliseconds(row.get(mode)) for mode in ("forward", "forward+backward")]
        cells.setdefault(row["contender"], {})[str(tuple(row["shape"]))] = " / ".join(times)
    return table(
        ["ms", *shapes], [[name, *(found.get(shape, "-") for shape in shapes)] for name, found in cells.items()]
    )


def targets(record: dict[str, Any]) -> str:
    words = {None: "not measured", True: "reached", False: "**not reached**"}
    rows = []
    for row in record["targets"]:
        value = "-" if row["value"] is None else f"{row['value']:.3g}"
        rows.append(
            [row["figure"], f"{'≥' if row['at_least'] else '≤'} {row['bound']:g}", value, words[row["reached"]]]
        )
    return table(["figure (float32, 1 thread)", "goal", "measured", ""], rows)


def main() -> None:
    record = json.loads((HERE / "results" / "scan.json").read_text())
    machine = ", ".join(f"{key} {value}" for key, value in record["machine"].items())
    text = "\n\n".join([f"Measured on: {machine}.", speed(record), targets(record)])
    readme = HERE.parent / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    after = rest.split(END)[1]
    temporary = readme.with_suffix(".tmp")
    temporary.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    temporary.replace(readme)


if __name__ == "__main__":
    main()
