"""Every figure of a report, with its title and caption, as SVG."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
from latchwork.reports.markup import slug
from latchwork.reports.records import Group, Record, best_run
from latchwork.reports.tables import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure that is done: a name for its file and for ids, a title, a caption, and the SVG."""

    name: str
    title: str
    caption: str
    svg: str


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
                _picture("ablation-converged", "Ablation: seeds that converged", caption, plot_converged(chosen))
            )
            continue
        rest = f"{BAND} Dashed grey: the best constant answer."
        if lines := [group for group in chosen if not is_few(group)]:
            caption = f"{title}: accuracy over the position in the sequence, mean of all seeds. {rest}"
            heading = f"{title}: accuracy over position"
            done.append(_picture(f"accuracy-{word}", heading, caption, plot_accuracy(lines)))
        if points := [group for group in chosen if is_few(group)]:
            caption = f"{title}: accuracy at the few steps where an answer is asked for, mean of all seeds. {rest}"
            done.append(_picture(f"answers-{word}", f"{title}: accuracy", caption, plot_answers(points)))
        caption = f"{title}: training, one line a seed. The thick line is the seed of the best validation accuracy."
        done.append(_picture(f"training-{word}", f"{title}: training", caption, plot_training(chosen)))
        if (record := _with_weights(Path(folder), chosen)) is not None:
            caption = (
                f"States of {record['experiment']}, seed {record['seed']} ({record['scale']}), over {STEPS} steps of "
                "an evaluation sequence, one row a layer. Left: the value of each state scalar. Right: what became of "
                "it. The scalars that hold most often are at the top."
            )
            figure = plot_trained_states(folder, record)
            done.append(_picture(f"states-{word}", f"{title}: states of a trained network", caption, figure))
    return done


def _picture(name: str, title: str, caption: str, figure: Figure) -> Picture:
    return Picture(name, title, caption, render(figure, name))


def _with_weights(folder: Path, groups: Sequence[Group]) -> Record | None:
    """The best run of the first group whose latches can be drawn."""
    from latchwork.experiments import EXPERIMENTS

    for group in groups:
        if group.first["model"].startswith("minmax") and group.experiment in EXPERIMENTS:
            found = [each for each in group.records if (folder / each["run"] / "model").is_dir()]
            if found:
                return best_run(found)
    return None
