"""The tables and the plot of README.md, from the records. Nothing is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from characters_runs import (
    MODELS,
    NANOGPT,
    OURS,
    RATES,
    SUBWORDS,
    TUNING_STEPS,
    Record,
    mean_loss,
    read_stage,
)

from latchwork.files import write_text
from latchwork.reports.figures import QUIET, SETTINGS, render
from latchwork.reports.markdown import between, table
from latchwork.training.presets import MUON

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = "<!-- results: written by studies/characters/characters.py --report -->", "<!-- end of results -->"
NAMES = {
    OURS: "minmax",
    NANOGPT: "as nanoGPT",
    **{name: name.removeprefix(f"{OURS}-") for name in MODELS[1:]},
}
COLOURS = {  # Okabe and Ito's
    OURS: "#0072b2",
    NANOGPT: QUIET,
    "char-1m-transformer": "#56b4e9",
    "char-1m-lstm": "#cc79a7",
    "char-1m-gru": "#e69f00",
    "char-1m-mamba": "#d55e00",
}
TRAINED = 64  # characters of a window in training
NONE = "–"


def write(folder: Path, page: Path) -> None:
    """Put tables between the page's marks, and the plot beside it."""
    tokens = by_name(read_stage("tokens", folder))
    if not tokens:
        raise ValueError(f"{folder} has no records of equal tokens: run some first")
    text = page.read_text(encoding="utf-8")
    if any(mark not in text for mark in MARKS):
        raise ValueError(f"{page} must have the lines {' and '.join(MARKS)}")
    timed = by_name(read_stage("time", folder))
    parts = [results(tokens, timed)]
    if subwords := read_stage("subwords", folder):
        parts += ["## GPT-2's tokens", of_subwords(subwords)]
    if tuning := read_stage("tuning", folder):
        parts += ["## Tuning", rates(tuning)]
    write_text(page.with_suffix(".svg"), render(plot(tokens), "characters"))
    write_text(page, between(MARKS, text, "\n\n".join(parts)))


def by_name(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Model -> its records, in the order of NAMES, each by seed."""
    found: dict[str, list[Record]] = {}
    for name in NAMES:
        own = [each for each in records if each["config"]["name"] == name]
        if own:
            found[name] = sorted(own, key=lambda each: int(each["config"]["seed"]))
    return found


def results(tokens: dict[str, list[Record]], timed: dict[str, list[Record]]) -> str:
    """One row a model."""
    rows = []
    for name, records in tokens.items():
        same = timed.get(name, [])
        rows.append(
            [
                NAMES[name],
                f"{records[0]['parameters']:,}",
                "{name} {learning_rate:g}".format_map(records[0]["config"]["optimizer"]),
                losses(records),
                difference(records, tokens.get(OURS, [])) if name != OURS else NONE,
                read_through(records),
                f"{mean(each['processor_seconds'] for each in records):.0f}",
                losses(same) if same else NONE,
                f"{same[0]['step']:,}" if same else NONE,
                f"{mean(each['processor_seconds'] for each in same):.0f}" if same else NONE,
            ]
        )
    seeds = sorted({len(records) for group in (tokens, timed) for records in group.values()})
    first = next(iter(tokens.values()))[0]
    about = (
        f"Validation loss in nats a character, windows of {TRAINED} characters from an empty state, mean over seeds "
        f"({' or '.join(map(str, seeds))} of them), in brackets the lowest and the highest. Equal tokens: "
        f"{first['step']:,} steps of 12 x {TRAINED} characters; seconds: of one processor, mean. Less minmax: the mean "
        "difference of equal seeds, for a seed draws the windows of its validation too. Equal time: the steps that a "
        "model makes in the time of nanoGPT's run, timed in turns in one process; the seconds that runs took differ by "
        "the load of the machine. Read through: after equal tokens, the whole validation text as one sequence, the "
        "state carried along, which a Transformer of finite memory cannot."
    )
    head = [
        "model",
        "parameters",
        "optimiser and rate",
        "loss at equal tokens",
        "less minmax",
        "read through",
        "seconds",
        "loss at equal time",
        "steps",
        "seconds they took",
    ]
    return f"{about}\n\n{table(head, rows)}"


def losses(records: Sequence[Record]) -> str:
    """Their mean, and where there are several the lowest and the highest."""
    found = [each["validation"]["mean"] for each in records]
    several = f" ({min(found):.3f} to {max(found):.3f})" if len(found) > 1 else ""
    return f"{mean_loss(records):.3f}{several}"


def difference(records: Sequence[Record], others: Sequence[Record]) -> str:
    """How much higher their loss is than that of others with the same seeds, in the mean."""
    known = {each["config"]["seed"]: each["validation"]["mean"] for each in others}
    found = [each["validation"]["mean"] - known[seed] for each in records if (seed := each["config"]["seed"]) in known]
    return f"{mean(found):+.3f}" if found else NONE


def read_through(records: Sequence[Record]) -> str:
    """The mean loss over the text as one sequence."""
    found = [each["read_through"] for each in records if each.get("read_through") is not None]
    return f"{mean(found):.3f}" if found else NONE


def of_subwords(records: Sequence[Record]) -> str:
    """One row a model of GPT-2's tokens."""
    rows = [
        [
            each["config"]["model"]["kind"],
            f"{each['parameters']:,}",
            f"{each['validation']['mean']:.3f}",
            f"{each['bits_per_byte']:.3f}",
            f"{each['processor_seconds']:,.0f}",
        ]
        for each in sorted(records, key=lambda each: SUBWORDS.index(each["config"]["name"]))
    ]
    first = records[0]
    batch = first["config"]["batch"]
    about = (
        f"Validation loss in nats a token and in bits a byte after {first['step']} steps of {batch['micro']} x "
        f"{batch['context']} tokens, one seed:"
    )
    return f"{about}\n\n{table(['model', 'parameters', 'loss', 'bits a byte', 'seconds'], rows)}"


def rates(tuning: Sequence[Record]) -> str:
    """One row a model, a column a learning rate."""
    columns = [f"{rate:g}" for rate in RATES]
    rows = []
    for name, records in by_name(tuning).items():
        cells = {each["words"]: each["validation"]["mean"] for each in records}
        shown = {column: f"{cells[column]:.3f}" for column in columns if column in cells}
        best = {column: f"**{word}**" for column, word in shown.items() if cells[column] == min(cells.values())}
        rows.append([NAMES[name], *({**shown, **best}.get(column, NONE) for column in columns)])
    about = (
        f"Loss after {TUNING_STEPS} steps on the first nine tenths of the training text, measured on its last tenth, "
        f"by the learning rate; Muon's matrices at {MUON.matrix_rate:g} times the rate:"
    )
    return f"{about}\n\n{table(['model', *columns], rows)}"


def plot(tokens: dict[str, list[Record]]) -> Figure:
    """The loss over the characters read, a line a model."""
    import matplotlib
    import matplotlib.figure

    with matplotlib.rc_context(SETTINGS):
        figure: Figure = matplotlib.figure.Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        for name, records in tokens.items():
            buckets: list[Any] = [each for each in records[0].get("contexts") or [] if each[3] is not None]
            if buckets:
                places = [math.sqrt(low * high) for low, high, *_ in buckets]
                width = 2 if name == OURS else 1.3
                axes.plot(
                    places, [each[3] for each in buckets], color=COLOURS[name], label=NAMES[name], linewidth=width
                )
        axes.axvline(TRAINED, color=QUIET, linestyle=":", linewidth=1, label="window in training")
        axes.set(xscale="log", xlabel="characters read", ylabel="loss (nats a character)", ylim=(1.3, 2.8))
        axes.grid(axis="y", color=QUIET, alpha=0.25, linewidth=0.5)
        axes.legend(fontsize=8)
    return figure
