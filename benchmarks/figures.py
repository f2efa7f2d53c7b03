"""Writes the figures of benchmarks/results/{scan,model}.json and the records under results/ into the README."""

import json
from pathlib import Path
from typing import Any

import model_figures
from latchwork.reports.markdown import between, table
from latchwork.reports.records import group_records, read_records
from latchwork.reports.tables import ablation_table, markdown, results_tables

HERE = Path(__file__).parent
SCAN_MARKS = "<!-- figures: written by benchmarks/figures.py -->", "<!-- end of figures -->"
RESULTS_MARKS = "<!-- results: written by benchmarks/figures.py -->", "<!-- end of results -->"
MODEL_MARKS = "<!-- model figures: written by benchmarks/figures.py -->", "<!-- end of model figures -->"


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


def scan_figures(record: dict[str, Any]) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in record["machine"].items())
    return "\n\n".join([f"Measured on: {machine}.", speed(record), targets(record)])


def all_model_figures(record: dict[str, Any]) -> str:
    tables = [table(*lines) for lines in model_figures.sections(record)]
    return "\n\n".join([model_figures.provenance(record), *tables, targets(record)])


def results(folder: Path) -> str:
    """The tables of the paper's experiments, as `latchwork report` has them."""
    groups = group_records(read_records(folder))
    ablation = ablation_table(groups)
    tables = [*results_tables(groups), *([ablation] if ablation else [])]
    return "\n\n".join(markdown(each).strip().replace("## ", "#### ", 1) for each in tables)


def main() -> None:
    readme = HERE.parent / "README.md"
    text = between(SCAN_MARKS, readme.read_text(), scan_figures(read("scan.json")))
    if all(mark in text for mark in MODEL_MARKS) and (HERE / "results" / "model.json").exists():
        text = between(MODEL_MARKS, text, all_model_figures(read("model.json")))
    text = between(RESULTS_MARKS, text, results(HERE.parent / "results"))
    temporary = readme.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(readme)


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "results" / name).read_text())
    return found


if __name__ == "__main__":
    main()
