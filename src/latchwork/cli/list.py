"""`latchwork list`: what can be named on a command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from enum import Enum
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table

from latchwork.experiments import EXPERIMENTS, Experiment
from latchwork.experiments.paper import CHECK

CAPTION = "paper: its accuracy at 2^20 steps; in ablations, how many of its seeds became perfect in validation"


class Kind(str, Enum):
    """What there are lists of."""

    tasks = "tasks"
    models = "models"
    configurations = "configurations"
    zoo = "zoo"
    experiments = "experiments"


def list_names(
    part: Annotated[str, typer.Argument(help="show only names that contain this")] = "",
    only: Annotated[Kind | None, typer.Option(help="one of the lists")] = None,
) -> None:
    """Print the tasks, models, configurations of `pretrain`, networks of the zoo, and experiments of the paper."""
    kinds = list(Kind) if only is None else [only]
    lists = {kind: LISTS[kind]() for kind in kinds}
    found = {kind: {name: row for name, row in rows.items() if part in name} for kind, rows in lists.items()}
    if not any(found.values()):
        near = get_close_matches(part, [name for rows in lists.values() for name in rows], n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise typer.BadParameter(f"no {_words(kinds)} has {part!r} in its name{hint}", param_hint="PART")
    for kind, rows in found.items():
        if not rows:
            continue
        heads = HEADS[kind]
        name = Column(heads[0], no_wrap=True, min_width=max(map(len, rows)))  # a name is never cut
        table = Table(name, *heads[1:], title=kind.value, title_justify="left", box=SIMPLE, padding=0)
        table.caption = CAPTION if kind is Kind.experiments else None
        for each, row in rows.items():
            table.add_row(each, *row)
        Console().print(table)


def _words(kinds: list[Kind]) -> str:
    names = {Kind.zoo: "network of the zoo"}
    return " or ".join(names.get(kind, kind.value.removesuffix("s")) for kind in kinds)


Rows = dict[str, tuple[str, ...]]


def _tasks() -> Rows:
    from latchwork.tasks.make import TASKS

    rows: Rows = {}
    for name, made in TASKS.items():
        parameters = [each for each in inspect.signature(made).parameters.values() if each.kind != each.KEYWORD_ONLY]
        words = [each.name if each.default is each.empty else f"{each.name}={each.default}" for each in parameters]
        rows[name] = (f"({', '.join(words)})" if words else "", (inspect.getdoc(made) or "").split("\n")[0])
    return rows


def _models() -> Rows:
    layers: dict[str, set[int]] = {}
    for each in EXPERIMENTS.values():
        layers.setdefault(each.model, set()).add(each.n_layers)
    return {name: (", ".join(map(str, sorted(found))),) for name, found in layers.items()}


def _configurations() -> Rows:
    from latchwork.training.presets import CONFIGS

    return {name: (str(each.model.kind),) for name, each in CONFIGS.items()}


def _zoo() -> Rows:
    from latchwork import zoo

    return {name: (zoo.proof(name)["task"],) for name in zoo.names()}


def _experiments() -> Rows:
    return {name: (str(each.n_layers), each.trainer, _published(each)) for name, each in EXPERIMENTS.items()}


def _published(experiment: Experiment) -> str:
    if experiment.converged is not None:
        return "{}/{}".format(*experiment.converged)
    if experiment.published is None:
        return ""
    return "perfect" if experiment.published == CHECK else "{:.1f} ± {:.1f} %".format(*experiment.published)


LISTS: dict[Kind, Callable[[], Rows]] = {
    Kind.tasks: _tasks,
    Kind.models: _models,
    Kind.configurations: _configurations,
    Kind.zoo: _zoo,
    Kind.experiments: _experiments,
}
HEADS = {
    Kind.tasks: ("task", "arguments", "what it asks for"),
    Kind.models: ("model", "layers in the paper's experiments"),
    Kind.configurations: ("configuration", "model"),
    Kind.zoo: ("network", "proved right on"),
    Kind.experiments: ("experiment", "layers", "trainer", "paper"),
}
