"""Tables of what was measured beside what was published, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from latchwork.evaluation.statistics import FEW, wilson
from latchwork.markup import slug
from latchwork.reports.records import Group, natural

CHECK, NOTHING = "✓", "–"
TITLES = {"latching": "Latching", "sequences": "Sequences", "induction_heads": "Induction heads"}


class Cell(NamedTuple):
    """What is printed, and what it is sorted by; None comes last."""

    text: str
    value: float | str | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A title, a caption that explains the columns, a head and rows of cells. name: a `slug`, for anchors.

    words: the number of columns, from the left, that hold words; the others hold numbers.
    """

    name: str
    title: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: int = 2


CAPTION = (
    f"Accuracies in per cent; {CHECK}: every answer of every seed was right. "
    "Ours: of one seed, with Wilson's 95% interval. The answers of a sequence depend on each other, so they count as "
    "fewer; in older records each sequence counts as one answer. "
    f"Fewer than {FEW} sequences have no interval: how much they differ is not known. "
    "Of several seeds: the mean, the lowest and the highest, and no interval. "
    "Stopped: training or evaluation was cut short. "
    "Published: the paper's value for this row, at the paper's scale. "
    "Constant: the best answer that never changes, on the sequences that were evaluated; expected: older records do "
    "not hold it, and it is what to expect on such sequences. "
    f"At changes: only the steps where the answer differs from the one before; {NOTHING}: there are none. "
    "Worst step: the lowest accuracy at any one step, mean over data sets. Validation and train: of the weights with "
    "the best validation accuracy. Sequences, length: all that were evaluated, and their steps. Times: wall-clock, all "
    "seeds together."
)
SAME_CAPTION = "Columns as in the first table."
ABLATION_CAPTION = (
    "Converged: seeds that reached perfect validation accuracy, of those that were run, with Wilson's 95% interval in "
    "per cent; beside them the paper's counts. "
    "minmax-s has 40 state scalars a layer, minmax-m has 90."
)
RUNS_CAPTION = "Every run by itself. Accuracies in per cent; stopped: why the training ended."


def results_tables(groups: Sequence[Group]) -> list[Table]:
    """One table for each of the paper's, without the ablation."""
    names = list(dict.fromkeys(group.first["table"] for group in groups if group.first["table"] != "ablation"))
    columns = _RESULTS
    return [
        Table(
            name=slug(name),
            title=TITLES.get(name, name),
            caption=CAPTION if name == names[0] else SAME_CAPTION,
            head=tuple(columns),
            rows=tuple(
                tuple(cell(group) for cell in columns.values()) for group in groups if group.first["table"] == name
            ),
        )
        for name in names
    ]


def ablation_table(groups: Sequence[Group]) -> Table | None:
    """Seeds that converged, beside the paper's counts; None without such runs."""
    chosen = [group for group in groups if group.first["table"] == "ablation"]
    if not chosen:
        return None
    changed = list(dict.fromkeys(name for group in chosen for name in sorted(group.first.get("changes") or {})))
    columns: dict[str, Callable[[Group], Cell]] = {
        "Task": _RESULTS["Task"],
        "Model": lambda group: _word(group.first["model"]),
        **{name: _change(name) for name in changed},
        "Converged": lambda group: _count(group.converged, len(group.records)),
        "95% interval": lambda group: _wilson(group.converged, len(group.records)),
        "Paper": lambda group: _count(*(group.first.get("converged") or (None, None))),
        "95% interval, paper": lambda group: _wilson(*(group.first.get("converged") or (None, None))),
        **{
            name: _RESULTS[name]
            for name in ("Ours", "Constant", "At changes", "Validation", "Epochs", "Training", "Batch", "Scale")
        },
    }
    return Table(
        name="ablation",
        title="Ablation",
        caption=ABLATION_CAPTION,
        head=tuple(columns),
        rows=tuple(tuple(cell(group) for cell in columns.values()) for group in chosen),
        words=2 + len(changed),
    )


def runs_table(groups: Sequence[Group]) -> Table:
    """One row a run."""
    rows = []
    for group in groups:
        for record in group.records:
            training, evaluation = record["training"], record["evaluation"]
            rows.append(
                (
                    Cell(record["experiment"], _sortable(record["experiment"])),
                    _word(record["scale"]),
                    _number(record["batch_size"]),
                    _number(record["seed"]),
                    _share(evaluation["average"]["mean"]),
                    _constant(Group(group.experiment, group.scale, group.batch_size, (record,))),
                    _share(evaluation["change"]),
                    _share(training["validation_accuracy"]),
                    _number(len(training["epochs"])),
                    _word(training.get("stopped") or NOTHING),
                )
            )
    head = ("Experiment", "Scale", "Batch", "Seed", "Ours", "Constant", "At changes", "Validation", "Epochs", "Stopped")
    return Table(name="runs", title="Runs", caption=RUNS_CAPTION, head=head, rows=tuple(rows))


def percent(share: float, digits: int = 2) -> str:
    """A share in per cent. Only what is perfect prints as 100, and only what is nothing as 0.

    >>> percent(0.5), percent(1.0), percent(0.999999), percent(1e-9)
    ('50.00', '100', '>99.99', '<0.01')
    """
    if share in (0, 1):
        return f"{100 * share:.0f}"
    text, least = f"{100 * share:.{digits}f}", 10.0**-digits
    if float(text) >= 100:
        return f">{100 - least:.{digits}f}"
    return f"<{least:.{digits}f}" if float(text) <= 0 else text


def duration(seconds: float) -> str:
    """Seconds, minutes or hours.

    >>> duration(42), duration(90), duration(9000)
    ('42 s', '1.5 min', '2.5 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, under a heading."""
    lines = [
        [markdown_text(each) for each in table.head],
        ["---" if column < table.words else "---:" for column in range(len(table.head))],
        *([markdown_text(cell.text) for cell in row] for row in table.rows),
    ]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"## {markdown_text(table.title)}\n\n{markdown_text(table.caption)}\n\n{body}\n"


def latex(table: Table) -> str:
    r"""The table as a longtable with booktabs' rules; it wants \usepackage{booktabs, longtable, amssymb}."""
    columns = "l" * table.words + "r" * (len(table.head) - table.words)
    head = " & ".join(latex_text(each) for each in table.head)
    rows = "\n".join(" & ".join(latex_text(cell.text) for cell in row) + r" \\" for row in table.rows)
    return (
        f"\\section*{{{latex_text(table.title)}}}\n{latex_text(table.caption)}\n\n"
        f"\\begin{{longtable}}{{{columns}}}\n\\toprule\n{head} \\\\\n\\midrule\n\\endhead\n\\bottomrule\n\\endfoot\n"
        f"{rows}\n\\end{{longtable}}\n"
    )


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is."""
    for character in "\\`*_|[]~$":
        text = text.replace(character, "\\" + character)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(text.split())


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    CHECK: r"$\checkmark$",
    NOTHING: "--",
    "±": r"$\pm$",
    "×": r"$\times$",
}


def latex_text(text: str) -> str:
    """Text that LaTeX prints as it is.

    >>> print(latex_text("a_b < 5% & ✓"))
    a\\_b \\textless{} 5\\% \\& $\\checkmark$
    """
    return " ".join("".join(_LATEX.get(character, character) for character in text).split())


def _word(text: Any) -> Cell:
    return Cell(str(text), str(text))


def _sortable(text: str) -> str:
    """Text whose numbers sort by their value."""
    return "".join(f"{number:09d}" if not kind else word for kind, number, word in natural(text))


def _number(value: float) -> Cell:
    return Cell(f"{value:,}", value)


def _share(value: float | None) -> Cell:
    return Cell(NOTHING) if value is None else Cell(percent(value), value)


def _span(values: Sequence[float]) -> Cell:
    """The value, or the lowest and the highest of several; sorted by the mean."""
    low, high = min(values), max(values)
    return Cell(f"{low:,}" if low == high else f"{low:,}–{high:,}", sum(values) / len(values))


def _ours(group: Group) -> Cell:
    accuracies, interval = group.accuracies, group.interval
    mean = sum(accuracies) / len(accuracies)
    text = f"{CHECK} 100" if group.perfect else percent(mean)
    if len(accuracies) > 1 and not group.perfect:
        text += f" (seeds: {percent(min(accuracies))}–{percent(max(accuracies))})"
    elif interval is not None and not group.perfect:
        low, high = next(pair for pair in _bounds(interval.low, interval.high) if pair[0] != pair[1])
        text += f" (95%: {low}–{high})"
    return Cell(f"{text}, {group.stopped}" if group.stopped else text, mean)


def _bounds(low: float, high: float) -> Iterator[tuple[str, str]]:
    """Both in per cent, with more and more digits."""
    for digits in range(1, 16):
        yield percent(low, digits), percent(high, digits)


def _constant(group: Group) -> Cell:
    cell = _share(group.mean("evaluation", "constant"))
    return cell._replace(text=f"{cell.text} expected") if group.constant_is_expected else cell


def _published(group: Group) -> Cell:
    if (published := group.first.get("published")) is None:
        return Cell(NOTHING)
    mean, margin = published
    return Cell(f"{CHECK} 100" if (mean, margin) == (100, 0) else f"{mean:.1f} ± {margin:.1f}", mean / 100)


def _evaluated(group: Group) -> Cell:
    sequences, lengths = sum(group.values("evaluation", "sequences")), group.values("evaluation", "length")
    return Cell(f"{sequences:,} × {_span(lengths).text}", sequences * sum(lengths) / len(lengths))


def _change(name: str) -> Callable[[Group], Cell]:
    def cell(group: Group) -> Cell:
        value = (group.first.get("changes") or {}).get(name)
        if isinstance(value, bool):
            return _word("yes" if value else "no")
        return Cell(NOTHING) if value is None else _word(value)

    return cell


def _count(found: int | None, tried: int | None) -> Cell:
    return Cell(NOTHING) if found is None or not tried else Cell(f"{found} of {tried}", found / tried)


def _wilson(found: int | None, tried: int | None) -> Cell:
    if found is None or not tried:
        return Cell(NOTHING)
    low, high = wilson(found, tried)
    return Cell(f"{100 * low:.0f}–{100 * high:.0f}", low)


def _time(part: str) -> Callable[[Group], Cell]:
    def cell(group: Group) -> Cell:
        seconds = sum(group.values(part, "seconds"))
        return Cell(duration(seconds), seconds)

    return cell


_RESULTS: dict[str, Callable[[Group], Cell]] = {
    "Task": lambda group: Cell(group.first["task"], _sortable(group.first["task"])),
    "Model": lambda group: _word(group.label),
    "Ours": _ours,
    "Published": _published,
    "Constant": _constant,
    "Validation": lambda group: _share(group.mean("training", "validation_accuracy")),
    "Train": lambda group: _share(group.mean("training", "train_accuracy")),
    "At changes": lambda group: _share(group.mean("evaluation", "change")),
    "Worst step": lambda group: _share(group.mean("evaluation", "minimum", "mean")),
    "Epochs": lambda group: _span([len(each) for each in group.values("training", "epochs")]),
    "Seeds": lambda group: _number(len(group.records)),
    "Sequences, length": _evaluated,
    "Parameters": lambda group: _span(group.values("parameters")),
    "Training": _time("training"),
    "Evaluation": _time("evaluation"),
    "Batch": lambda group: _number(group.batch_size),
    "Scale": lambda group: _word(group.scale),
}
