"""Figures of what was measured, as SVG."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latchwork.evaluation.statistics import FEW, wilson
from latchwork.extras import optional
from latchwork.reports.diagnostics import COLOURS as CAUSE_COLOURS
from latchwork.reports.labels import label_ends
from latchwork.reports.records import ENDS, Group, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Key = tuple[str, str, int]

INK, PAPER, QUIET = "#24292f", "#ffffff", "#767676"  # on a page, ink and paper give way to the page's own
# Okabe and Ito's colours, which the colour-blind tell apart; a family's variants differ in the pattern of the line.
COLOURS = {"minmax": "#0072b2", "mamba": "#d55e00", "slstm": "#009e73", "mlstm": "#cc79a7", "xlstm": "#e69f00"}
COLOURS |= {"lstm": "#56b4e9", "gru": "#999999", "transformer": "#882255"}
OTHER = "#56b4e9"
PATTERNS: tuple[Any, ...] = ("-", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)), (0, (1, 3)))
LONGEST = 60  # characters of a name
WIDTH = 4.7  # inches: a figure so wide is shown whole on a phone
STEPS = 40  # of the sequence that a trained network's states are drawn over
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
}
BAND = (
    "Band: from the lowest to the highest seed; where there is one seed, Wilson's 95% interval with each sequence "
    f"counted as one answer, and none for fewer than {FEW} sequences."
)


CONSTANT = ("constant", "constant, expected")  # of the data that was evaluated; of such data


def plot_accuracy(groups: Sequence[Group]) -> Figure:
    """Accuracy over position on one task, one line a group; see BAND for the bands."""
    figure, (axes,), style = _panels(groups, 1)
    for group in groups:
        places, middle, low, high = accuracy_by_position(group)
        look = style[_key(group)]
        axes.plot(places, middle, **{**look, "label": look["label"] + (", stopped" if group.stopped else "")})
        axes.fill_between(places, low, high, color=look["color"], alpha=0.2, linewidth=0)
    axes.axhline(_constant(groups), color=QUIET, linestyle="--", linewidth=1, label=_constant_name(groups))
    longest = max(value for group in groups for value in group.values("evaluation", "length"))
    axes.set(xscale="log", xlim=(1, max(2, longest)), ylim=(0, 102), yticks=(0, 25, 50, 75, 100))
    axes.set(xlabel="position (steps)", ylabel="accuracy (%)")
    label_ends(axes)
    return figure


def plot_training(groups: Sequence[Group]) -> Figure:
    """Loss above validation accuracy over epochs on one task, one line a seed, the best one thick.

    A cross at the end of a line: the training was stopped.
    """
    figure, (losses, accuracies), style = _panels(groups, 2)
    for group in groups:
        for record in group.records:
            look = {**style[_key(group)], "linewidth": 2 if record is group.best else 0.7}
            if record is not group.best:
                look["label"] = "_"
            epochs = record["training"]["epochs"]
            count = range(1, len(epochs) + 1)
            loss = [each["loss"] if each["loss"] and each["loss"] > 0 else math.nan for each in epochs]
            marker = "o" if len(epochs) == 1 else None
            losses.plot(count, loss, **look, marker=marker)
            accuracy = [100 * each["validation_accuracy"] for each in epochs]
            accuracies.plot(count, accuracy, **look, marker=marker)
            if record["training"].get("stopped") not in (None, *ENDS):
                for axes, values in ((losses, loss), (accuracies, accuracy)):
                    axes.plot(len(epochs), values[-1], "x", color=look["color"], clip_on=False)
    longest = max(len(each["training"]["epochs"]) for group in groups for each in group.records)
    losses.set(yscale="log", ylabel="training loss", xlim=(0, longest + 1))
    accuracies.set(ylim=(0, 102), ylabel="validation (%)", xlabel="epoch")
    accuracies.locator_params(axis="x", integer=True)
    label_ends(accuracies)
    return figure


def plot_answers(groups: Sequence[Group]) -> Figure:
    """Accuracy where it is asked for at few steps only: one panel a task, a point a group, seeds as the band."""
    figure, panels = _lists(groups, "accuracy (%)")
    for axes, chosen in panels:
        for place, group in enumerate(chosen):
            _, middle, low, high = accuracy_by_position(group)
            colour = COLOURS.get(group.first["model"].split("-")[0], OTHER)
            axes.plot([min(low), max(high)], [place, place], color=colour, linewidth=1.5)
            axes.plot(sum(middle) / len(middle), place, "o", color=colour, clip_on=False)
        axes.axvline(_constant(chosen), color=QUIET, linestyle="--", linewidth=1, label=_constant_name(chosen))
    _legend(figure)
    return figure


def plot_converged(groups: Sequence[Group]) -> Figure:
    """The share of seeds that converged, with Wilson's interval, one panel a task, one line a variant."""
    figure, panels = _lists(groups, "seeds that reached perfect validation accuracy (%)")
    for axes, chosen in panels:
        for place, group in enumerate(chosen):
            tried = len(group.records)
            low, high = wilson(group.converged, tried)
            axes.plot([100 * low, 100 * high], [place, place], color=COLOURS["minmax"], linewidth=1.5)
            share = 100 * group.converged / tried
            axes.plot(share, place, "o", color=COLOURS["minmax"], clip_on=False, label="ours")
            if (paper := group.first.get("converged")) is not None:
                look: dict[str, Any] = {
                    "markerfacecolor": "none",
                    "markersize": 9,
                    "color": COLOURS["mamba"],
                    "clip_on": False,
                }
                axes.plot(100 * paper[0] / paper[1], place, "o", label="paper", **look)
    _legend(figure)
    return figure


def plot_trained_states(folder: str | os.PathLike[str], record: Record, steps: int = STEPS) -> Figure:
    """States of a run's best weights over a sequence, one row a layer: values on the left, set, hold, reset right.

    folder: what `read_records` was given. The model is in the folder of the run.
    """
    import torch

    from latchwork.evaluation.diagnostics import latch_report
    from latchwork.experiments import EXPERIMENTS
    from latchwork.load import load_model
    from latchwork.tasks import make_task

    run = Path(folder) / record["run"]
    experiment = EXPERIMENTS[record["experiment"]]
    task = make_task(experiment.task)  # not the record's word for it
    model: Any = load_model(run)
    if getattr(model, "vocab_size", None) != task.vocabulary:
        raise ValueError(f"{run} must hold the model of {record['experiment']}; it holds {type(model).__name__}")
    tokens = task.sample("evaluation", 0, 1, steps).tokens
    state, reports = None, []
    for step in range(steps):
        report = latch_report(model, tokens[:, step : step + 1], state)
        state = report.state
        reports.append(report)
    values = torch.stack([each.highest for each in reports], -1)  # (n_layers, d_state, T)
    causes = {
        name: torch.stack([getattr(each, name) for each in reports], -1) for name in ("set", "reset", "moved", "held")
    }
    return _plot_states(
        values.double().numpy(), {name: each.numpy() for name, each in causes.items()}, tokens[0].tolist()
    )


def accuracy_by_position(group: Group) -> tuple[list[float], list[float], list[float], list[float]]:
    """For each bucket of positions: its middle, the mean accuracy in per cent, and the bounds of the band."""
    buckets: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for positions in group.positions:
        for first, end, asked, right in positions:
            buckets.setdefault((first, end), []).append((asked, right))
    sequences = group.first["evaluation"]["sequences"]
    places, middle, low, high = [], [], [], []
    for (first, end), counts in sorted(buckets.items()):
        shares = [right / asked for asked, right in counts]
        bounds = min(shares), max(shares)
        if len(group.records) == 1 and sequences >= FEW:
            independent = min(counts[0][0], sequences)
            bounds = wilson(shares[0] * independent, independent)
        places.append(math.sqrt((first + 1) * end))
        middle.append(100 * sum(shares) / len(shares))
        low.append(min(100 * bounds[0], middle[-1]))
        high.append(max(100 * bounds[1], middle[-1]))
    return places, middle, low, high


def render(figure: Figure, name: str) -> str:
    """The figure as SVG, the same bytes for the same figure; name: a word that no other figure on a page has."""
    import matplotlib

    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the reader's fonts draw the letters, not those at hand
        figure.savefig(file, format="svg", metadata=nothing)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _matplotlib() -> Any:
    optional("plots", "matplotlib.figure")
    return optional("plots", "matplotlib")


def _key(group: Group) -> Key:
    """What tells the lines of a panel apart."""
    return group.label, group.scale, group.batch_size


def _names(groups: Sequence[Group]) -> dict[Key, str]:
    """What to call each, with its scale and batch size only where they differ."""
    scales, names = {group.scale for group in groups}, {}
    for group in groups:
        sizes = {each.batch_size for each in groups if (each.label, each.scale) == (group.label, group.scale)}
        name = _text(group.label) + (f", {_text(group.scale)}" if len(scales) > 1 else "")
        names[_key(group)] = name + (f", batch {group.batch_size}" if len(sizes) > 1 else "")
    return names


def _text(text: str) -> str:
    """A name as matplotlib draws it: on one line, not too long, its $ no formula, its first _ no reason to hide it."""
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
    return (f" {line}" if line.startswith("_") else line).replace("$", r"\$")


def _constant(groups: Sequence[Group]) -> float:
    """The mean accuracy of the best constant answer, in per cent."""
    values = [value for group in groups for value in group.values("evaluation", "constant")]
    return float(100 * sum(values) / len(values))


def _constant_name(groups: Sequence[Group]) -> str:
    return CONSTANT[any(group.constant_is_expected for group in groups)]


def is_few(group: Group) -> bool:
    """Whether answers were asked for at so few places that a line would say nothing."""
    return max(map(len, group.positions)) < 4


def _lists(groups: Sequence[Group], label: str) -> tuple[Figure, list[tuple[Axes, list[Group]]]]:
    """A figure with a panel for each task, in it a line for each group, and per cent to the right."""
    matplotlib = _matplotlib()
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.first["task"], []).append(group)
    heights = [len(chosen) + 1 for chosen in tasks.values()]
    with matplotlib.rc_context(SETTINGS):
        figure: Figure = matplotlib.figure.Figure(
            figsize=(WIDTH, 0.8 + 0.5 * len(tasks) + 0.2 * sum(heights)), layout="constrained"
        )
        rows = figure.subplots(len(tasks), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    names = _names(groups)
    for axes, (task, chosen) in zip(rows, tasks.items(), strict=True):
        labels = [names[_key(group)] for group in chosen]
        axes.set(yticks=range(len(chosen)), yticklabels=labels, ylim=(len(chosen) - 0.4, -0.6), xlim=(0, 100))
        axes.grid(axis="x", color=QUIET, alpha=0.25, linewidth=0.5)
        axes.set_title(_text(task), loc="left", fontsize=9)
    rows[-1].set_xlabel(label)
    return figure, list(zip(rows, tasks.values(), strict=True))


def _panels(groups: Sequence[Group], count: int) -> tuple[Figure, list[Axes], dict[Key, dict[str, Any]]]:
    """A figure of one task with so many panels, one above the other, and the look of each model's lines."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context(SETTINGS):
        figure = matplotlib.figure.Figure(figsize=(WIDTH, 0.7 + (2.3, 3.6)[count - 1]), layout="constrained")
        panels = list(figure.subplots(count, sharex=True, squeeze=False).flat)
    for axes in panels:
        axes.grid(axis="y", color=QUIET, alpha=0.25, linewidth=0.5)
    panels[0].set_title(_text(groups[0].first["task"]), loc="left", fontsize=9)
    names = _names(groups)
    style: dict[Key, dict[str, Any]] = {}
    used: dict[str, int] = {}
    for group in groups:
        if _key(group) in style:
            continue
        colour = COLOURS.get(group.first["model"].split("-")[0], OTHER)
        pattern = PATTERNS[used.get(colour, 0) % len(PATTERNS)]
        used[colour] = used.get(colour, 0) + 1
        style[_key(group)] = {"color": colour, "linestyle": pattern, "linewidth": 1.5, "label": names[_key(group)]}
    return figure, panels, style


def _legend(figure: Figure) -> None:
    """One legend for all panels, above them, a name once."""
    names: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            names.setdefault(label, handle)
    for label in CONSTANT:
        if label in names:
            names[label] = names.pop(label)  # to the end
    with _matplotlib().rc_context(SETTINGS):
        figure.legend(list(names.values()), list(names), loc="outside upper left", ncols=min(3, len(names)))


def _plot_states(values: Any, causes: dict[str, Any], tokens: list[int]) -> Figure:
    matplotlib = _matplotlib()
    names = [name for name in causes if name != "moved" or causes[name].any()]
    n_layers, d_state, steps = values.shape
    kinds = sum(causes[name] * number for number, name in enumerate(names))
    colours = matplotlib.colors.ListedColormap([CAUSE_COLOURS[name] for name in names])
    with matplotlib.rc_context(SETTINGS):
        figure: Figure = matplotlib.figure.Figure(figsize=(10, 0.9 + 2.2 * n_layers), layout="constrained")
        rows = figure.subplots(n_layers, 2, sharex=True, squeeze=False)
        for layer, (left, right) in enumerate(rows):
            look = {"aspect": "auto", "interpolation": "nearest", "extent": (0.5, steps + 0.5, d_state, 0)}
            largest = abs(values[layer]).max() or 1.0
            order = (-causes["held"][layer].sum(-1)).argsort(kind="stable")
            image = left.imshow(values[layer][order], cmap="RdBu_r", vmin=-largest, vmax=largest, **look)
            figure.colorbar(image, ax=left, pad=0.02)
            right.imshow(kinds[layer][order], cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, **look)
            right.set_yticks([])
            left.set_yticks([])
            left.set_ylabel(f"layer {layer}: {d_state} state scalars")
        rows[0, 0].set_title("value of the state", loc="left")
        rows[0, 1].set_title("set, reset or held", loc="left")
        for axes in rows[-1]:
            axes.set_xlabel("token at each step")
            axes.set_xticks(range(1, steps + 1), [str(token) for token in tokens], fontsize=6, rotation=90)
            axes.tick_params(length=2)
        handles = [matplotlib.patches.Patch(color=CAUSE_COLOURS[name], label=name) for name in names]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(names))
    return figure
