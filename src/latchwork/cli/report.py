"""`latchwork report`: all records as Markdown, LaTeX and one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    records: Annotated[Path, typer.Argument(help="a folder with runs, as `latchwork run --out` made it")] = Path(
        "runs"
    ),
    out: Annotated[Path, typer.Option(help="where the report goes")] = Path("report"),
) -> None:
    """Write report.md, report.tex and report.html from every record found."""
    from latchwork.reports.report import write_report

    try:
        written = write_report(records, out)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="RECORDS") from None
    for path in written:
        typer.echo(path)
