"""Writes docs/paper_tables.md: each row of the paper's tables beside the records under results/.

python benchmarks/paper_tables.py
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from latchwork.evaluation.statistics import Interval, wilson
from latchwork.experiments import EXPERIMENTS, Experiment
from latchwork.reports.records import Group, group_records, read_records
from latchwork.reports.tables import TITLES, percent

ROOT = Path(__file__).parent.parent
FEWEST_SEEDS = 5  # of a row of the ablation
INTRODUCTION = """# The paper's tables, row by row

Written by `python benchmarks/paper_tables.py` from the records under `results/`; do not edit.

The paper trains each model with 3 to 10 seeds and evaluates the one that is best on validation data. So does this page,
with as many seeds as were run.

- **Reproduced**: the paper has 100% and every answer of ours was right; or the paper's interval and ours overlap.
- **Not reproduced**: they do not overlap.
- **Not run**: there is no record of a training that ended by the rule: two epochs in a row without a wrong validation
  answer, the paper's early stopping, all of its epochs, or its limit of four hours.

Converged: the seeds with every validation answer right, of those that were run. Ours: the accuracy at the length given
and its 95% interval over sequences. Below 99% from: the first step where the accuracy is lower than that. Positions are
counted in groups, each a quarter longer than the one before. Where an answer comes at the end alone, sequences of
2^12, 2^14, 2^16, 2^18 and 2^20 steps were tried. A row of the ablation counts the seeds that converged, with Wilson's
95% interval; with fewer than five seeds nothing is concluded. Accuracies are in per cent.
"""


def ended(group: Group) -> bool:
    """Whether every training ended by the rule. Ours with every validation answer right has nothing more to learn."""
    trainings = group.values("training")
    return all(
        each.get("stopped") not in ("time limit", "diverged")
        or (each.get("hours") or 0) >= 4
        or each["validation_accuracy"] == 1
        for each in trainings
    )


def below(group: Group) -> str:
    """The first step where less than 99% of the first seed's answers are right, counted from 1."""
    wrong = [first + 1 for first, _, asked, right in group.positions[0] if right < 0.99 * asked]
    return f"{wrong[0]:,}" if wrong else "never"


def accuracy_row(experiment: Experiment, group: Group | None) -> list[str]:
    published = experiment.published
    paper = "100" if published == (100.0, 0.0) else "" if published is None else f"{published[0]} ± {published[1]}"
    if group is None or not ended(group):
        return [experiment.name, paper, *[""] * 5, "not run"]
    best = replace(group, records=(group.best,))
    accuracy = best.accuracies[0]
    _, low, high = (100 * each for each in best.interval or Interval(accuracy, accuracy, accuracy))
    ours = "100" if best.perfect else f"{percent(accuracy)} ({low:.1f} to {high:.1f})"
    if published is None:
        verdict = "not in the paper"
    elif published == (100.0, 0.0):
        verdict = "reproduced" if best.perfect else "not reproduced"
    else:
        overlap = low <= published[0] + published[1] and published[0] - published[1] <= high
        verdict = "reproduced" if overlap else "not reproduced"
    evaluation = group.best["evaluation"]
    return [
        experiment.name,
        paper,
        f"{group.converged} of {len(group.records)}",
        percent(group.best["training"]["validation_accuracy"]),
        ours,
        f"{evaluation['sequences']} × {evaluation['length']:,}",
        below(best),
        verdict,
    ]


def ablation_row(experiment: Experiment, group: Group | None) -> list[str]:
    found = experiment.converged
    paper = "" if found is None else f"{found[0]} of {found[1]}"
    if group is None:
        return [experiment.name, paper, "", "not run"]
    seeds = len(group.records)
    low, high = wilson(group.converged, seeds)
    ours = f"{group.converged} of {seeds} ({100 * low:.0f} to {100 * high:.0f})"
    if found is None:
        return [experiment.name, paper, ours, "not in the paper"]
    if seeds < FEWEST_SEEDS:
        return [experiment.name, paper, ours, "too few seeds"]
    theirs = wilson(*found)
    return [experiment.name, paper, ours, "reproduced" if low <= theirs[1] and theirs[0] <= high else "not reproduced"]


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows]) + "\n"


def page(groups: Iterable[Group]) -> str:
    by_name = {group.experiment: group for group in groups}
    parts = [INTRODUCTION]
    for name, title in {**TITLES, "ablation": "Ablation"}.items():
        row, head = (
            accuracy_row,
            ["row", "paper", "converged", "validation", "ours", "sequences × steps", "below 99% from", ""],
        )
        if name == "ablation":
            row, head = ablation_row, ["row", "paper", "ours", ""]
        rows = [row(each, by_name.get(each.name)) for each in EXPERIMENTS.values() if each.table == name]
        verdicts = [each[-1] for each in rows]
        counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
        parts.append(f"## {title}\n\n{len(rows)} rows: {counts}.\n\n{table(head, rows)}")
    return "\n".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "paper_tables.md").write_text(page(group_records(read_records(ROOT / "results"))))
