"""`latchwork runs`: what runs a folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from latchwork.cli.options import path as read_path


def runs(
    folder: Annotated[Path, typer.Argument(parser=read_path, help="a folder with runs, or the folder of one run")],
) -> None:
    """List runs: name, plan, state (finished, running, stopped), steps and result. `stopped` runs can be resumed."""
    from latchwork.training.runs import list_runs

    found = list_runs(folder)
    if not found:
        typer.echo(f"{folder} holds no run", err=True)
        return
    table = Table(Column("run", no_wrap=True), "plan", "state", "steps", "result", box=SIMPLE, padding=0)
    for each in found:
        steps = f"{each.step:,}" if each.step else ""
        table.add_row(each.name, each.plan, each.state, steps, each.result)
    Console().print(table)
