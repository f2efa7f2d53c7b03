"""All records under a folder as Markdown, LaTeX and one HTML page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from latchwork.files import write_text
from latchwork.reports.page import make_page
from latchwork.reports.pictures import Picture, pictures
from latchwork.reports.records import Group, group_records, read_records
from latchwork.reports.tables import (
    Table,
    ablation_table,
    latex,
    latex_text,
    markdown,
    markdown_text,
    results_tables,
    runs_table,
)

TITLE = "MinMax Recurrent Neural Cascades: measured beside published"
ABOUT = (
    "Models are trained on short sequences and evaluated on long ones. Every number here comes from the record that a "
    "run of latchwork left on disk; the published ones are those of the paper's tables.",
    "Scales: smoke shows that everything runs and says nothing about a model; laptop trains as the paper does, with "
    "fewer seeds and fewer evaluation sequences; paper is the paper's own protocol.",
)
PREAMBLE = r"""\documentclass[9pt,a4paper]{extarticle}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[landscape,margin=12mm]{geometry}
\usepackage{amssymb,booktabs,longtable}
\setlength{\tabcolsep}{3pt}
\setlength{\LTleft}{0pt}
\setlength{\parindent}{0pt}
\begin{document}
"""


def write_report(records_folder: str | os.PathLike[str], out_folder: str | os.PathLike[str]) -> list[Path]:
    """Write report.md, report.tex, report.html and figures/*.svg; return their paths.

    The same records give the same bytes. A reader finds the old file or the new one, never a part.
    """
    records = read_records(records_folder)
    if not records:
        raise ValueError(f"no record.json under {records_folder}")
    groups = group_records(records)
    ablation = ablation_table(groups)
    tables = [*results_tables(groups), *([ablation] if ablation else [])]
    runs = runs_table(groups)
    figures, summary = pictures(records_folder, groups), summarise(groups)
    files = {
        **{f"figures/{name}.svg": svg for picture in figures for name, svg in picture.parts.items()},
        "report.md": _markdown(summary, tables, figures, runs),
        "report.tex": _latex(summary, [*tables, runs]),
        "report.html": make_page(TITLE, ABOUT, summary, tables, figures, runs, groups),
    }
    return [_write(Path(out_folder) / name, text) for name, text in files.items()]


def summarise(groups: Sequence[Group]) -> str:
    """One or two sentences: how much was run, and how much of it is perfect."""
    runs = sum(len(group.records) for group in groups)
    scales = ", ".join(sorted({group.scale for group in groups}))
    names = {group.experiment for group in groups}
    text = f"{_plural(runs, 'run')} of {_plural(len(names), 'experiment')} at scale {scales}."
    judged = [group for group in groups if group.first["table"] != "ablation"]
    if judged:
        perfect = sum(group.perfect for group in judged)
        text += f" In {perfect} of {_plural(len(judged), 'row')} every evaluation answer of every seed was right."
    published = [group for group in judged if group.first.get("published") is not None]
    if published:
        agreeing = sum(group.perfect == (tuple(group.first["published"]) == (100, 0)) for group in published)
        text += f" The paper has {_plural(len(published), 'row')} of these and agrees on that in {agreeing}."
    return text


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _markdown(summary: str, tables: Sequence[Table], figures: Sequence[Picture], runs: Table) -> str:
    pictured = [
        "\n".join(f"![{markdown_text(each.title)}](figures/{name}.svg)" for name in each.parts)
        + f"\n\n{markdown_text(each.caption)}\n"
        for each in figures
    ]
    paragraphs = [
        f"# {markdown_text(TITLE)}\n",
        f"{markdown_text(summary)}\n",
        *(f"{markdown_text(each)}\n" for each in ABOUT),
    ]
    return "\n".join([*paragraphs, *(markdown(table) for table in tables), "## Figures\n", *pictured, markdown(runs)])


def _latex(summary: str, tables: Sequence[Table]) -> str:
    paragraphs = [f"\\section*{{{latex_text(TITLE)}}}", latex_text(summary), *(latex_text(each) for each in ABOUT)]
    return PREAMBLE + "\n\n".join([*paragraphs, *(_small(latex(table)) for table in tables)]) + "\n\\end{document}\n"


def _small(text: str) -> str:
    return f"{{\\footnotesize\n{text}}}\n"


def _write(path: Path, text: str) -> Path:
    """With the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path
