"""`latchwork report`: all records as Markdown, LaTeX and one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latchwork.cli.options import check_out
from latchwork.cli.options import path as read_path
from latchwork.extras import need


def report(
    records: Annotated[
        Path, typer.Argument(parser=read_path, help="a folder with runs, as `latchwork run --out` made it")
    ] = Path("runs"),
    out: Annotated[Path, typer.Option(parser=read_path, help="where the report goes")] = Path("report"),
) -> None:
    """Write report.md, report.tex and report.html from every record found."""
    from latchwork.reports.report import write_report

    need("experiments", "matplotlib", "scipy")
    if not records.is_dir():
        raise NotADirectoryError(f"{records} must be a folder with runs")
    check_out(out, folder=True)
    for path in write_report(records, out):
        typer.echo(path)
