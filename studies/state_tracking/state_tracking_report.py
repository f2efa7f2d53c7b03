"""The tables and the plot of README.md, from the records. Nothing is run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from state_tracking_jobs import LENGTHS, LONG, best_rate, last_tests
from state_tracking_tasks import MODELS, OURS, RATES

from latchwork.files import read_json, write_text
from latchwork.reports.figures import QUIET, SETTINGS, render
from latchwork.reports.markdown import between, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
Groups = dict[tuple[str, str], list[Record]]
MARKS = "<!-- results: written by studies/state_tracking/state_tracking.py --report -->", "<!-- end of results -->"
PUBLISHED = Path(__file__).with_name("published.json")
EFFECT = Path(__file__).parents[2] / "results" / "state_tracking" / "effect" / "effect.json"
COLOURS = {  # Okabe and Ito's
    "minmax": "#0072b2",
    "lstm": "#cc79a7",
    "gru": "#e69f00",
    "slstm": "#009e73",
    "mamba": "#d55e00",
    "transformer": "#56b4e9",
}
# In the plot, where there are records.
SHOWN = ("parity", "word_problem(S3)", "transformations(3)", "cyclic(60)", "word_problem(A5)", "word_problem(S5)")
NONE = "–"


def write(records: Sequence[Record], page: Path) -> None:
    """Put tables between the page's marks, and the plot beside it."""
    if not records:
        raise ValueError("there are no records to report: run some jobs first")
    text = page.read_text(encoding="utf-8")
    if any(mark not in text for mark in MARKS):
        raise ValueError(f"{page} must have the lines {' and '.join(MARKS)}")
    groups = group(records)
    write_text(page.with_suffix(".svg"), render(plot(groups), "state-tracking"))
    write_text(page, between(MARKS, text, body(records, groups)))


def group(records: Sequence[Record]) -> Groups:
    """Problem and model -> its records at one learning rate: that of the most seeds, the best of those."""
    found: dict[tuple[str, str], dict[float, list[Record]]] = {}
    for record in records:
        rates = found.setdefault((record["problem"], record["model"]), {})
        rates.setdefault(record["rate"], []).append(record)
    chosen: Groups = {}
    for key, rates in found.items():
        most = max(len(each) for each in rates.values())
        tied = [each[0] for each in rates.values() if len(each) == most]
        chosen[key] = sorted(rates[best_rate(tied)], key=lambda each: int(each["seed"]))
    return chosen


def body(records: Sequence[Record], groups: Groups) -> str:
    """All tables, each under its heading."""
    problems = list(dict.fromkeys(record["problem"] for record in records))
    compared = [each for each in problems if sum((each, model) in groups for model in MODELS) > 1]
    machine = records[-1].get("hardware", {})
    parts = [
        f"Measured on one thread of {machine.get('processor', 'an unknown processor')}, with other work beside it: "
        "steps can be compared, seconds only roughly. Medians over seeds, in brackets the lowest and the highest.",
        "### Ours",
        ours(problems, groups),
    ]
    if compared:
        parts += ["### Other models in the same loop", side_by_side(compared, groups)]
        parts += ["Learning rates tried, with seed 0: steps until it was learnt, or else the length that was reached. "
                  "The best has as many seconds as the table above says, the others had fewer.",
                  rates_tried(compared, records)]  # fmt: skip
    if (effect := read_json(EFFECT)) is not None:
        parts += ["### Beside scalars, where those suffice", beside_scalars(effect["rows"])]
    return "\n\n".join([*parts, "### Published", published()])


def ours(problems: Sequence[str], groups: Groups) -> str:
    """One row a problem."""
    rows = []
    for problem in problems:
        chosen = groups.get((problem, OURS))
        if not chosen:
            continue
        first, units = chosen[0], chosen[0]["units"]
        proofs = [each["proof"] for each in chosen if each.get("proof")]
        learnt = [each["training"] for each in chosen if each["training"]["learnt"]]
        rows.append(
            [
                problem,
                str(first["letters"]),
                describe_units(units),
                allowed(chosen),
                f"{len(learnt)}/{len(chosen)}",
                ", ".join(str(len(each["stuck"])) for each in chosen)
                if any(each["stuck"] for each in chosen)
                else NONE,
                spread([each["steps"] for each in learnt]),
                spread([each["seconds"] for each in learnt]),
                errors([at(each["tests"], LENGTHS[-1]) for each in chosen if each["training"]["learnt"]]),
                errors([at(each["tests"], LONG) for each in proofs]),
                spread([each["units"] for each in proofs]),
                outcomes(proofs, len(chosen)),
            ]
        )
    head = ["task, and length where not 40", "letters", "units", "seconds allowed", "learnt", "begun anew, by seed",
            "steps", "seconds", "errors at 8,192, as trained", "errors at 2^20, without idle units",
            "units left", "proved"]  # fmt: skip
    return table(head, rows)


def describe_units(units: Record) -> str:
    """How many there are and of which kind; layers only where there are several."""
    layers = units.get("layers", 1)
    each = "" if layers == 1 else f" in each of {layers} layers"
    return f"{units['units']} of degree {units['degree']}, {units['form']}{each}"


def side_by_side(problems: Sequence[str], groups: Groups) -> str:
    """One row a problem and model."""
    rows = []
    for problem in problems:
        for model in MODELS:
            chosen = groups.get((problem, model))
            if not chosen:
                continue
            learnt = [each["training"] for each in chosen if each["training"]["learnt"]]
            rows.append(
                [
                    problem,
                    model,
                    f"{chosen[0]['parameters']:,}",
                    f"{chosen[0]['rate']:g}",
                    allowed(chosen),
                    f"{len(learnt)}/{len(chosen)}",
                    spread([each["steps"] for each in learnt]),
                    spread([each["training"]["length"] for each in chosen]),
                    *(accuracy([at(each["tests"], length) for each in chosen]) for length in (*LENGTHS, LONG)),
                    percent(constant(chosen)),
                ]
            )
    head = ["task", "model", "parameters", "rate", "seconds allowed", "learnt", "steps", "length reached",
            *(f"accuracy at {length:,} (%)" for length in LENGTHS), "at 2^20", "constant"]  # fmt: skip
    return table(head, rows)


def rates_tried(problems: Sequence[str], records: Sequence[Record]) -> str:
    """One row a problem and model, a column a rate."""
    rows = []
    for problem in problems:
        for model in MODELS[1:]:
            cells = {}
            for record in records:
                if (record["problem"], record["model"], record["seed"]) == (problem, model, 0):
                    training, limit = record["training"], record["limits"]["seconds"]
                    reached = f"length {training['length']} in {limit:g} s"
                    cells[record["rate"]] = f"{training['steps']:,} steps" if training["learnt"] else reached
            if cells:
                rows.append([problem, model, *(cells.get(rate, NONE) for rate in RATES)])
    return table(["task", "model", *(f"{rate:g}" for rate in RATES)], rows)


def beside_scalars(rows: Sequence[Record]) -> str:
    """One row a task and model: the validation accuracy of each seed after each epoch."""
    cells: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        shown = ", ".join(percent(each) for each in row["accuracies"])
        cells.setdefault((row["task"], row["model"]), []).append(shown)
    about = (
        "The paper's small model with 40 scalars a layer, alone and with four units of degree 4 beside them, trained "
        "on 5,000 sequences until every validation answer is right, for at most eight epochs: validation accuracy in "
        "per cent after each, seed after seed (`python studies/state_tracking/state_tracking_effect.py`)."
    )
    lines = [[task, model, "; ".join(seeds)] for (task, model), seeds in cells.items()]
    return f"{about}\n\n{table(['task', 'model', 'accuracy after each epoch, by seed'], lines)}"


def published() -> str:
    """What others have written, with its source; what was not read there is marked."""
    data = read_json(PUBLISHED)
    assert data is not None
    tasks = list(dict.fromkeys(each["task"] for each in data["numbers"]))
    models = list(dict.fromkeys(each["model"] for each in data["numbers"]))
    cells = {(each["model"], each["task"]): each for each in data["numbers"]}
    rows = [
        [model, *(_number(cells[model, task]) if (model, task) in cells else NONE for task in tasks)]
        for model in models
    ]
    first = data["numbers"][0]
    about = (
        f"{first['source']} ({first['url']}): {first['measure']}; trained on {first['trained']}, tested on "
        f"{first['tested']}. Their modular arithmetic, and all their sizes and lengths, differ from ours. *: not "
        "checked against the paper's text, as quoted in this project's notes."
    )
    claims = [
        f"- {each['claim']}{'' if each['checked'] else ' *'} ({each['source']}, {each['url']})"
        for each in data["claims"]
    ]
    return "\n\n".join([about, table(["model", *tasks], rows), "\n".join(claims)])


def _number(cell: Record) -> str:
    return f"{cell['value']:.3f}" + ("" if cell["checked"] else " *")


def at(tests: Sequence[Record], length: int) -> Record | None:
    """The test at that length, if there was one."""
    return next((each for each in tests if each["length"] == length), None)


def spread(values: Sequence[float]) -> str:
    """The median, and where they differ the lowest and the highest."""
    if not values:
        return NONE
    words = [f"{value:,.0f}" for value in (median(values), min(values), max(values))]
    return words[0] if words[1] == words[2] else f"{words[0]} ({words[1]} to {words[2]})"


def allowed(records: Sequence[Record]) -> str:
    """Seconds after which a training was given up."""
    return spread([each["limits"]["seconds"] for each in records])


def errors(tests: Sequence[Record | None]) -> str:
    """All wrong answers of all seeds, of how many."""
    done = [each for each in tests if each is not None]
    if not done:
        return NONE
    return f"{sum(each['errors'] for each in done):,} of {sum(each['answers'] for each in done):,}"


def accuracy(tests: Sequence[Record | None]) -> str:
    """The median accuracy in per cent."""
    done = [each["accuracy"] for each in tests if each is not None]
    return percent(median(done)) if done else NONE


def percent(share: float | None) -> str:
    """In per cent; 100 only if all were right."""
    if share is None:
        return NONE
    return "100" if share == 1 else f"{min(100 * share, 99.99):.2f}"


def constant(records: Sequence[Record]) -> float | None:
    """The accuracy of the best answer that never changes."""
    found = [test["constant"] for each in records for test in each["tests"] if "constant" in test]
    return median(found) if found else None


def outcomes(proofs: Sequence[Record], seeds: int) -> str:
    """How many were proved, and what the others were."""
    count = Counter(each["result"] for each in proofs)
    others = [f"{number} {name}" for name, number in count.items() if name != "proof"]
    return ", ".join([f"{count['proof']}/{seeds}", *others])


def plot(groups: Groups) -> Figure:
    """Accuracy over the position in the word, a panel a problem: the median over seeds, and their range as a band."""
    import matplotlib
    import matplotlib.figure

    problems = [each for each in SHOWN if any((each, model) in groups for model in MODELS)]
    problems = problems or list(dict.fromkeys(problem for problem, _ in groups))[:4]
    columns = min(2, len(problems))
    rows = -(-len(problems) // columns)
    with matplotlib.rc_context(SETTINGS):
        figure: Figure = matplotlib.figure.Figure(figsize=(8, 0.8 + 2.4 * rows), layout="constrained")
        figure.get_layout_engine().set(wspace=0.05)  # type: ignore[union-attr]  # room between the numbers below
        panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
        for unused in panels[len(problems) :]:
            unused.remove()
        for axes, problem in zip(panels, problems, strict=False):
            shown = [(model, groups[problem, model]) for model in MODELS if (problem, model) in groups]
            for model, chosen in reversed(shown):  # ours last, so that it is on top
                places, middle, low, high = curve(chosen)
                axes.plot(places, middle, color=COLOURS[model], label=model, linewidth=2 if model == OURS else 1.3)
                axes.fill_between(places, low, high, color=COLOURS[model], alpha=0.2, linewidth=0)
                if ends := [test["accuracy"] for each in chosen if (test := at(last_tests(each), LONG))]:
                    axes.plot(LONG, 100 * median(ends), "o", color=COLOURS[model], markersize=4, clip_on=False)
            if (chance := constant([each for _, chosen in shown for each in chosen])) is not None:
                axes.axhline(100 * chance, color=QUIET, linestyle="--", linewidth=1, label="constant")
            trained = max(each["length"] for _, chosen in shown for each in chosen)
            axes.axvline(trained, color=QUIET, linestyle=":", linewidth=1, label="longest in training")
            axes.set(xscale="log", xlim=(1, LONG), ylim=(0, 102), yticks=(0, 25, 50, 75, 100))
            axes.set_title(problem, loc="left", fontsize=9)
            axes.grid(axis="y", color=QUIET, alpha=0.25, linewidth=0.5)
            axes.label_outer()
        figure.supxlabel("position (steps)", fontsize=9)
        figure.supylabel("accuracy (%)", fontsize=9)
        names: dict[str, Any] = {}
        for axes in figure.axes:
            names.update(dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)))
        order = [each for each in (*MODELS, "constant", "longest in training") if each in names]
        figure.legend([names[each] for each in order], order, loc="outside upper left", ncols=4)
    return figure


def curve(records: Sequence[Record]) -> tuple[list[float], list[float], list[float], list[float]]:
    """For each bucket of positions: its middle; the median, lowest and highest accuracy of the seeds, in per cent.

    A position is read from the shortest test that has it: short ones have more words.
    """
    buckets: dict[tuple[int, int], list[float]] = {}
    for record in records:
        before = 0
        for test in last_tests(record):
            if "positions" not in test:
                continue
            for first, end, asked, right in test["positions"]:
                if first >= before:
                    buckets.setdefault((first, end), []).append(100 * right / asked)
            before = test["length"]
    places = [math.sqrt((first + 1) * end) for first, end in sorted(buckets)]
    shares = [buckets[key] for key in sorted(buckets)]
    return places, [median(each) for each in shares], [min(each) for each in shares], [max(each) for each in shares]
