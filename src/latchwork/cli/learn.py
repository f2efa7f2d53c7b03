"""`latchwork learn`: from a file of labelled events to a machine and a network that is proved to be it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from latchwork.cli.options import check_out, number
from latchwork.cli.options import path as read_path
from latchwork.errors import NO, UNKNOWN
from latchwork.extras import need


def learn(
    events: Annotated[Path, typer.Argument(parser=read_path, help="CSV, parquet or JSON lines, one row an event")],
    sequence: Annotated[str, typer.Option(help="the column that says which sequence a row belongs to")],
    event: Annotated[str, typer.Option(help="the column of the events")],
    label: Annotated[list[str], typer.Option(help="the column of the labels; several make one combined label")],
    out: Annotated[Path, typer.Option(parser=read_path, help="the folder to write: network, machine and page")],
    order: Annotated[str | None, typer.Option(help="the column to sort a sequence by; default: as in the file")] = None,
    per: Annotated[str, typer.Option(help="labels belong to each step, to each sequence, or auto")] = "auto",
    seconds: Annotated[float, typer.Option(min=0.1, callback=number, help="about how long it may take")] = 60.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    method: Annotated[str, typer.Option(help="merging, network, or both")] = "both",
) -> None:
    """Learn what the labels of sequences of events depend on.

    Writes a folder that `certify`, `extract` and `export --onnx` take, with machine.json for `draw` and a page,
    index.html. Exit code 0: learnt, and network and machine are proved to agree. 1: nothing was learnt in time. 2:
    wrong usage or input. 3: learnt, but not proved.
    """
    from latchwork.automata import Proof
    from latchwork.learning import learn as learn_traces
    from latchwork.learning.learn import NothingLearnt
    from latchwork.learning.tables import read_sequences

    if per not in ("auto", "step", "sequence"):
        raise typer.BadParameter(f"must be auto, step or sequence; got {per!r}", param_hint="--per")
    if method not in ("both", "merging", "network"):
        raise typer.BadParameter(f"must be both, merging or network; got {method!r}", param_hint="--method")
    if method != "network":
        need("automata", "aalpy")
    check_out(out, folder=True)
    console = Console(stderr=True)
    with console.status("reading") as status:
        names, sequences, labels = read_sequences(events, sequence, event, label, order, per)  # type: ignore[arg-type]
        kind = "a label for each step" if isinstance(labels[0], list) else "a label for each sequence"
        steps = sum(map(len, sequences))
        console.print(f"{len(sequences):,} sequences, {steps:,} events, {kind}", markup=False)

        def watch(text: str) -> None:
            status.update(text)
            console.print(text, markup=False, highlight=False)

        try:
            found = learn_traces(sequences, labels, seconds=seconds, seed=seed, method=method, watch=watch)  # type: ignore[arg-type]
        except NothingLearnt as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(NO) from None
    found.save(out)
    if found.contradicted:
        shown = ", ".join(str(names[each]) for each in found.contradicted[:10])
        more = f" and {len(found.contradicted) - 10:,} more" if len(found.contradicted) > 10 else ""
        typer.echo(f"contradicted: {shown}{more}", err=True)
    typer.echo(str(found))
    typer.echo(out)
    if not isinstance(found.certificate, Proof):
        raise typer.Exit(UNKNOWN)
