"""`latchwork list`: the experiments."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from latchwork.experiments import EXPERIMENTS, Experiment
from latchwork.experiments.paper import CHECK

CAPTION = "paper: its accuracy at 2^20 steps; in ablations, how many of its seeds became perfect in validation"


def list_experiments(
    part: Annotated[str, typer.Argument(help="show only names that contain this")] = "",
) -> None:
    """Print the experiments: every row of the paper's tables."""
    found = [each for name, each in EXPERIMENTS.items() if part in name]
    if not found:
        near = get_close_matches(part, EXPERIMENTS, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise typer.BadParameter(f"no experiment has {part!r} in its name{hint}", param_hint="PART")
    name = Column("experiment", no_wrap=True, min_width=max(len(each.name) for each in found))  # a name is never cut
    table = Table(name, "layers", "trainer", "paper", caption=CAPTION, box=SIMPLE, padding=0)
    for each in found:
        table.add_row(each.name, str(each.n_layers), each.trainer, _published(each))
    Console().print(table)


def _published(experiment: Experiment) -> str:
    if experiment.converged is not None:
        return "{}/{}".format(*experiment.converged)
    if experiment.published is None:
        return ""
    return "perfect" if experiment.published == CHECK else "{:.1f} ± {:.1f} %".format(*experiment.published)
