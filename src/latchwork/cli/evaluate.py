"""`latchwork evaluate`: how often a model is right on a task."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from latchwork.cli.options import MOST, MOST_STEPS, Model
from latchwork.cli.options import device as check_device


def evaluate(
    model: Model,
    task: Annotated[str, typer.Argument(help="as make_task takes it: 'latching(4)', 'parity', ...")],
    length: Annotated[int, typer.Option(min=1, max=MOST_STEPS, help="steps of each sequence")] = 1000,
    sequences: Annotated[int, typer.Option(min=1, max=MOST, help="number of sequences")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="of the sequences")] = 0,
    device: Annotated[str, typer.Option(callback=check_device, help="cpu or cuda")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="print everything that was counted, as JSON")] = False,
) -> None:
    """Run a model on new sequences of a task and print its accuracy. Memory does not grow with the length."""
    from latchwork.evaluation.streaming import evaluate as run
    from latchwork.load import load_model
    from latchwork.tasks import make_task

    made, network = make_task(task), load_model(model, device)
    size = getattr(network, "vocab_size", getattr(network, "vocabulary", 0))
    if size < made.vocabulary:
        raise ValueError(f"{model} knows {size} tokens and {made.name} has {made.vocabulary}: another task trained it")
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(made.name, total=None)
        found = run(
            network,
            made,
            seed=seed,
            sequences=sequences,
            length=length,
            chunk=min(length, 4096),
            watch=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if as_json:
        typer.echo(json.dumps(found))
        return
    changes = "" if found["change"] is None else f", {100 * found['change']:.2f}% where the answer changes"
    typer.echo(
        f"{made.name}: {100 * found['average']:.2f}% right{changes}, over {sequences:,} sequences of {length:,} steps; "
        f"the best constant answer has {100 * found['constant']:.2f}%"
    )
