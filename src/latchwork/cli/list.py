"""`latchwork list`: the experiments."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from latchwork.experiments import EXPERIMENTS, Experiment
from latchwork.experiments.paper import CHECK


def list_experiments(
    part: Annotated[str, typer.Argument(help="show only names that contain this")] = "",
) -> None:
    """Print the experiments: every row of the paper's tables."""
    found = [each for name, each in EXPERIMENTS.items() if part in name]
    if not found:
        typer.echo(f"no experiment has {part!r} in its name", err=True)
        raise typer.Exit(2)
    table = Table("experiment", "task", "layers", "trainer", "in the paper")
    for each in found:
        table.add_row(each.name, each.task, str(each.n_layers), each.trainer, _published(each))
    Console().print(table)


def _published(experiment: Experiment) -> str:
    if experiment.converged is not None:
        return "{} of {} seeds perfect".format(*experiment.converged)
    if experiment.published is None:
        return ""
    return "perfect" if experiment.published == CHECK else "{:.1f} ± {:.1f} %".format(*experiment.published)
