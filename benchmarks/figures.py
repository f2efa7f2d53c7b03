"""Writes the figures of benchmarks/results and the records under results into README.md and the pages of docs."""

import json
from pathlib import Path
from typing import Any

import baselines
import model_figures
import temporal_figures
from latchwork.reports.markdown import between, table
from latchwork.reports.pictures import pictures
from latchwork.reports.records import best_run, group_records, read_records
from latchwork.reports.tables import ablation_table, markdown, results_tables

HERE = Path(__file__).parent
SCAN_MARKS = "<!-- figures: written by benchmarks/figures.py -->", "<!-- end of figures -->"
RESULTS_MARKS = "<!-- results: written by benchmarks/figures.py -->", "<!-- end of results -->"
SUMMARY_MARKS = "<!-- summary: written by benchmarks/figures.py -->", "<!-- end of summary -->"
SUMMARISED = (
    "forward+backward (64, 2048, 40), times as fast as minmaxrnc",
    "training step of the small preset, V = 20, times as fast as minmaxrnc",
    "training step of the small preset, V = 20, peak memory, parts of minmaxrnc's",
)
MODEL_MARKS = "<!-- model figures: written by benchmarks/figures.py -->", "<!-- end of model figures -->"
QUICK_MARKS = "<!-- quick figures: written by benchmarks/figures.py -->", "<!-- end of quick figures -->"
BASELINE_MARKS = "<!-- baseline figures: written by benchmarks/figures.py -->", "<!-- end of baseline figures -->"
TEMPORAL_MARKS = "<!-- temporal figures: written by benchmarks/figures.py -->", "<!-- end of temporal figures -->"


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


def measured_on(record: dict[str, Any]) -> str:
    return f"Measured on: {', '.join(f'{key} {value}' for key, value in record['machine'].items())}."


def scan_figures(record: dict[str, Any]) -> str:
    return "\n\n".join([measured_on(record), speed(record), targets(record)])


def baseline_figures(record: dict[str, Any]) -> str:
    """A row a model: tokens a second, and the share of ours beside its goal."""
    speeds, ours = record["tokens_per_second"], baselines.OURS
    rows = []
    for name in speeds["training"]:
        cells = [f"{each[name]:,.0f} ({each[name] / each[ours]:.2f})" for each in speeds.values()]
        goal = baselines.GOALS.get(name, 0) / 98
        reached = speeds["training"][name] >= goal * speeds["training"][ours]
        words = ["≥ " + f"{goal:.2f}", "reached" if reached else "**not reached**"] if goal else ["", ""]
        rows.append([name, *cells, *words])
    return "\n\n".join([measured_on(record), table(["model", *speeds, "goal in training", ""], rows)])


def all_temporal_figures(record: dict[str, Any]) -> str:
    return "\n\n".join([measured_on(record), table(*temporal_figures.table_of(record))])


def all_model_figures(record: dict[str, Any]) -> str:
    tables = [table(*lines) for lines in model_figures.sections(record)]
    return "\n\n".join([model_figures.provenance(record), *tables, targets(record)])


def results(folder: Path, page: Path) -> str:
    """The tables of the paper's experiments, as `latchwork report` has them, and accuracy over position as files."""
    groups = group_records(read_records(folder))
    ablation = ablation_table(groups)
    tables = [*results_tables(groups), *([ablation] if ablation else [])]
    parts = [markdown(each).strip() for each in tables]
    for old in page.glob("accuracy-*.svg"):
        old.unlink()
    for picture in pictures(folder, groups):
        if picture.name.startswith("accuracy-"):
            for name, svg in picture.parts.items():
                (page / f"{name}.svg").write_text(svg)
            drawn = " ".join(f"![{picture.title}]({name}.svg)" for name in picture.parts)
            parts.append(f"## {picture.title}\n\n{drawn}\n\n{picture.caption}")
    return "\n\n".join(parts)


def summary(root: Path) -> str:
    """The README's one table: a row for each thing that was measured, with the page that has the rest."""
    paper, speed_page, tracking = "docs/results/paper.md", "docs/results/speed.md", "studies/state_tracking/README.md"
    rows = []
    groups = {group.experiment: group.records for group in group_records(read_records(root / "results"))}
    ours = [name for name in groups if name.endswith("/minmax-s") and not name.startswith("ablation")]
    right = [name for name in ours if best_run(groups[name])["evaluation"]["average"]["mean"] == 1]
    rows.append(
        [
            "tasks of the paper, no wrong answer in sequences of 2^20 steps, of the seed that is best in validation",
            f"{len(right)} of {len(ours)}",
            paper,
        ]
    )
    others = [each for group in groups.values() if not group[0]["model"].startswith("minmax") for each in group]
    learnt = [each for each in others if each["training"]["validation_accuracy"] >= 0.9]
    at_end = [100 * each["evaluation"]["average"]["mean"] for each in learnt]
    rows.append(
        [
            "the same, other models that reached 90% on validation data: right answers in sequences of 2^20 steps",
            f"{min(at_end):.0f} to {max(at_end):.0f}%, {len(at_end)} trainings",
            paper,
        ]
    )
    for group in ("S5", "A5"):
        found = [
            json.loads(path.read_text())["proof"] or {}
            for path in (root / "results/state_tracking").glob(f"word-problem-{group}_minmax_*.json")
        ]
        proved = sum(each.get("result") == "proof" for each in found)
        rows.append(
            [
                f"word problem of {group}, all its elements: seeds learnt and proved",
                f"{proved} of {len(found)}",
                tracking,
            ]
        )
    found = [json.loads(line) for line in (root / "results/state_tracking/pd_ssm/S5-32.jsonl").read_text().splitlines()]
    proved = sum(each["proof"]["result"] == "proof" for each in found)
    rows.append(["word problem of S5 by 32 generators: seeds learnt and proved", f"{proved} of {len(found)}", tracking])
    learning = [
        json.loads(line)
        for path in sorted((root / "results/learning").glob("*-*.jsonl"))
        if path.name.startswith(("tomita", "random"))
        for line in path.read_text().splitlines()
    ]
    proved = sum(each["proved"] for each in learning)
    what = "Tomita 1 to 7 and random machines of 4 to 10 states: seeds learnt and proved"
    rows.append([what, f"{proved} of {len(learning)}", "studies/learning/README.md"])
    languages = json.loads((root / "results/languages/compile.json").read_text())["languages"].values()
    chosen = [each["chosen"]["result"] == "Proof" for each in languages if "chosen" in each]
    what = "languages of MLRegTest compiled to networks: proved for words of every length"
    rows.append([what, f"{sum(chosen):,} of {len(chosen):,}", "studies/languages/README.md"])
    for name, page in (("scan.json", speed_page), ("model.json", speed_page)):
        for row in read(name)["targets"]:
            if row["figure"] in SUMMARISED and row["value"] is not None:
                rows.append([row["figure"], f"{row['value']:.3g}", page])
    return table(["what", "measured", ""], [[what, value, f"[more]({page})"] for what, value, page in rows])


def write(path: Path, *parts: tuple[tuple[str, str], str]) -> None:
    """Put each part between its marks, and write the file whole or not at all."""
    text = path.read_text()
    for marks, figures in parts:
        text = between(marks, text, figures)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def main() -> None:
    root = HERE.parent
    pages = root / "docs" / "results"
    scan, model = scan_figures(read("scan.json")), all_model_figures(read("model.json"))
    quick = "\n\n".join([measured_on(read("scan_quick.json")), targets(read("scan_quick.json"))])
    for name in ("model_quick.json", "model_intel.json"):
        quick = f"{quick}\n\n{all_model_figures(read(name))}"
    others = baseline_figures(read("baselines.json"))
    speed = ((SCAN_MARKS, scan), (MODEL_MARKS, model), (QUICK_MARKS, quick), (BASELINE_MARKS, others))
    write(pages / "speed.md", *speed)
    write(pages / "paper.md", (RESULTS_MARKS, results(root / "results", pages)))
    write(root / "docs" / "temporal.md", (TEMPORAL_MARKS, all_temporal_figures(read("temporal.json"))))
    write(root / "README.md", (SUMMARY_MARKS, summary(root)))


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "results" / name).read_text())
    return found


if __name__ == "__main__":
    main()
