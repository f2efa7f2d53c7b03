"""Every figure of a report, with its title and caption, as SVG."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from latchwork.markup import slug
from latchwork.reports.figures import (
    BAND,
    STEPS,
    is_few,
    plot_accuracy,
    plot_answers,
    plot_converged,
    plot_trained_states,
    plot_training,
    render,
)
from latchwork.reports.records import Group, Record, best_run
from latchwork.reports.tables import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure that is done: a name for its files and for ids, a title, a caption, and its parts as SVG."""

    name: str
    title: str
    caption: str
    svgs: tuple[str, ...]

    @property
    def parts(self) -> dict[str, str]:
        """The name of each part, and its SVG."""
        names = (
            [self.name] if len(self.svgs) == 1 else [f"{self.name}-{place}" for place in range(1, len(self.svgs) + 1)]
        )
        return dict(zip(names, self.svgs, strict=True))


def pictures(folder: str | os.PathLike[str], groups: Sequence[Group]) -> list[Picture]:
    """Every figure of a report: accuracy and training for each table, states where weights are at hand.

    folder: what `read_records` was given.
    """
    done = []
    for table in dict.fromkeys(group.first["table"] for group in groups):
        chosen = [group for group in groups if group.first["table"] == table]
        word = slug(table)
        title = TITLES.get(table, table.replace("_", " ").capitalize())
        if table == "ablation":
            caption = (
                "Ablation: share of seeds that reached perfect validation accuracy, with Wilson's 95% interval. "
                "Circles: the paper's."
            )
            done.append(
                _picture("ablation-converged", "Ablation: seeds that converged", caption, [plot_converged(chosen)])
            )
            continue
        rest = f"{BAND} Dashed grey: the best constant answer."
        lines = [group for group in chosen if not is_few(group)]
        lines, flat = _worth_a_panel(lines, lambda group: not group.perfect)
        if lines:
            caption = f"{title}: accuracy over the position in the sequence, mean of all seeds. {rest}"
            caption += _left_out(flat, "every answer at every position was right")
            heading = f"{title}: accuracy over position"
            done.append(_picture(f"accuracy-{word}", heading, caption, map(plot_accuracy, _by_task(lines))))
        points, flat = _worth_a_panel([group for group in chosen if is_few(group)], lambda group: not group.perfect)
        if points:
            caption = f"{title}: accuracy at the few steps where an answer is asked for, mean of all seeds. {rest}"
            caption += _left_out(flat, "every answer was right")
            done.append(_picture(f"answers-{word}", f"{title}: accuracy", caption, [plot_answers(points)]))
        trained, flat = _worth_a_panel(chosen, _learns_slowly)
        if trained:
            caption = (
                f"{title}: training, one line a seed. The thick line is the seed of the best validation accuracy. A "
                "cross: the training was stopped."
            )
            caption += _left_out(flat, "validation accuracy was perfect from the first epoch on")
            figures = map(plot_training, _by_task(trained))
            done.append(_picture(f"training-{word}", f"{title}: training", caption, figures))
        if (record := _with_weights(Path(folder), chosen)) is not None:
            caption = (
                f"States of {record['experiment']}, seed {record['seed']} ({record['scale']}), over {STEPS} steps of "
                "an evaluation sequence, one row a layer. Left: the value of each state scalar. Right: what became of "
                "it. The scalars that hold most often are at the top."
            )
            figure = plot_trained_states(folder, record)
            done.append(_picture(f"states-{word}", f"{title}: states of a trained network", caption, [figure]))
    return done


def _picture(name: str, title: str, caption: str, figures: Iterable[Figure]) -> Picture:
    return Picture(name, title, caption, tuple(render(each, f"{name}-{place}") for place, each in enumerate(figures)))


def _by_task(groups: Sequence[Group]) -> list[list[Group]]:
    tasks = dict.fromkeys(group.first["task"] for group in groups)
    return [[group for group in groups if group.first["task"] == task] for task in tasks]


def _worth_a_panel(groups: Sequence[Group], varies: Callable[[Group], bool]) -> tuple[list[Group], list[str]]:
    """The groups of the tasks in which some group varies, and the other tasks: their panels would be flat lines."""
    tasks = list(dict.fromkeys(group.first["task"] for group in groups))
    drawn = {group.first["task"] for group in groups if varies(group)}
    return [group for group in groups if group.first["task"] in drawn], [task for task in tasks if task not in drawn]


def _learns_slowly(group: Group) -> bool:
    """Whether some seed was not perfect on the validation data from its first epoch on."""
    return any(epoch["validation_accuracy"] < 1 for each in group.records for epoch in each["training"]["epochs"])


def _left_out(tasks: Sequence[str], why: str) -> str:
    return f" Not drawn, for {why}: {', '.join(tasks)}." if tasks else ""


def _with_weights(folder: Path, groups: Sequence[Group]) -> Record | None:
    """The best run of the first group whose latches can be drawn."""
    from latchwork.experiments import EXPERIMENTS

    for group in groups:
        if group.first["model"].startswith("minmax") and group.experiment in EXPERIMENTS:
            found = [each for each in group.records if (folder / each["run"] / "model").is_dir()]
            if found:
                return best_run(found)
    return None
