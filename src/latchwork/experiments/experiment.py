"""An experiment is data: which model learns which task by which trainer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from torch import nn

from latchwork.baselines.registry import MINMAX, ModelConfig, make_model, preset
from latchwork.training.trainer import TRAINERS


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One row of a table.

    task: as `make_task` takes it. model: "minmax-s", "minmax-m", or the name of a baseline. trainer: a key of TRAINERS.
    changes: to the fields of MinMax's configuration, in an ablation. table: where the paper has it.
    published: the paper's evaluation accuracy for this row, in per cent, and its margin; (100, 0) where it prints a
    check mark, None where it has no such row. converged: seeds that reached perfect validation accuracy there, of how
    many.
    """

    name: str
    table: str
    task: str
    model: str
    trainer: str
    n_layers: int = 2
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    published: tuple[float, float] | None = None
    converged: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without building anything."""
        if self.trainer not in TRAINERS:
            raise ValueError(f"trainer must be one of {', '.join(TRAINERS)}; got {self.trainer!r}")
        for name in ("published", "converged"):  # lists, where they come from JSON
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.changes and self.model not in MINMAX:
            raise ValueError(f"changes are for {', '.join(MINMAX)}; got them for {self.model!r}")

    def model_config(self) -> ModelConfig:
        """The complete configuration of the model."""
        return preset(self.model, self.n_layers, self.changes)

    def make_model(self, vocabulary: int) -> nn.Module:
        """The model, with fresh weights from torch's generator."""
        return make_model(self.model_config(), vocabulary)


def by_name(experiments: Iterable[Experiment]) -> dict[str, Experiment]:
    """Experiments by their names; a name used twice is an error."""
    named: dict[str, Experiment] = {}
    for experiment in experiments:
        if experiment.name in named:
            raise ValueError(f"two experiments are called {experiment.name!r}")
        named[experiment.name] = experiment
    return named


def find(names: Mapping[str, Experiment], wanted: str) -> list[Experiment]:
    """The experiment of that name, or all whose name begins with it and a slash; else an error with the nearest."""
    if wanted in names:
        return [names[wanted]]
    if found := [each for name, each in names.items() if name.startswith(wanted.rstrip("/") + "/")]:
        return found
    groups = {"/".join(name.split("/")[:depth]) for name in names for depth in (1, 2)}
    near = get_close_matches(wanted, sorted({*names, *groups}), n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise ValueError(f"no experiment {wanted!r}; {hint}`latchwork list` prints all")
