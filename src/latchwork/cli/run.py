"""`latchwork run`: train and evaluate, or resume."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column, Table
from typer.core import TyperCommand

from latchwork.baselines.registry import packages
from latchwork.cli.options import MOST, MOST_STEPS, MOST_THREADS, check_out, number, resumable
from latchwork.cli.options import device as check_device
from latchwork.cli.options import path as read_path
from latchwork.errors import NO, one_line
from latchwork.experiments import EXPERIMENTS, Experiment
from latchwork.experiments.display import Display
from latchwork.experiments.experiment import find
from latchwork.experiments.pool import Pool, Processes, Ray
from latchwork.experiments.sweep import Run, Sweep, sweep
from latchwork.extras import need
from latchwork.reports.tables import percent
from latchwork.training.protocol import SCALES, Scale, ScaleName


class RunCommand(TyperCommand):
    """`--ray` with an address after it, or alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say 'local' where no address is said: parsers of options know a value or none, not either."""
        for index in [index for index, word in enumerate(args) if word == "--ray"]:
            if index + 1 == len(args) or args[index + 1].startswith("-"):
                args = [*args[: index + 1], "local", *args[index + 1 :]]
        return super().parse_args(ctx, args)


def run(
    names: Annotated[list[str], typer.Argument(help="as `latchwork list` prints them; a part before a / means all")],
    scale: Annotated[
        ScaleName, typer.Option(help="the budget: smoke (seconds), laptop (minutes to an hour), paper")
    ] = "laptop",
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="exactly this many; default: as the scale says")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="only this one; default: each of the trainer's")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(min=0, callback=number, help="of training, for all seeds together; default: as the scale says"),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_STEPS, help="steps of each sequence in evaluation; default: as the scale says"),
    ] = None,
    out: Annotated[Path, typer.Option(parser=read_path, help="the folder that holds all runs")] = Path("runs"),
    jobs: Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="runs at a time")] = 1,
    threads: Annotated[
        int, typer.Option(min=1, max=MOST_THREADS, help="of each run; part of what makes two runs identical")
    ] = 1,
    device: Annotated[str, typer.Option(callback=check_device, help="cpu or cuda")] = "cpu",
    ray: Annotated[
        str | None,
        typer.Option(help="on a Ray cluster, at an address or 'auto'; alone, on one made here", metavar="[ADDRESS]"),
    ] = None,
    gpus: Annotated[float, typer.Option(min=0, callback=number, help="of each run on Ray")] = 0.0,
) -> None:
    """Run experiments. After an interruption the same command resumes, and does not repeat what is finished.

    A folder that holds a run of other options is an error: give another --out. Exit code 1 if a run failed.
    """
    experiments = list(dict.fromkeys(each for name in names for each in find(EXPERIMENTS, name)))
    check_out(out, folder=True)
    need("experiments", "scipy", "tensorboard")
    need("baselines", *sorted({package for each in experiments for package in packages(each.model)}))
    chosen = SCALES[scale]
    if seeds is not None:
        chosen = replace(chosen, training=replace(chosen.training, min_seeds=seeds, max_seeds=seeds))
    if hours is not None:
        chosen = replace(chosen, training=replace(chosen.training, hours=hours))
    if length is not None:
        chosen = replace(chosen, evaluation=replace(chosen.evaluation, length=length))
    try:
        pool = Processes(jobs) if ray is None else Ray(None if ray == "local" else ray, threads, gpus)
    except (ImportError, ConnectionError) as error:
        raise typer.BadParameter(str(error), param_hint="--ray") from None
    done = _sweep(experiments, chosen, pool, out, batch_size, threads, device)
    _print(done.records)
    for each, failure in done.errors.items():
        title = f"{each.experiment.name} batch {each.batch_size} seed {each.seed}"
        typer.echo(f"{title} failed: {one_line(str(failure))}", err=True)
    if done.errors:
        raise typer.Exit(NO)


def _sweep(
    experiments: list[Experiment],
    scale: Scale,
    pool: Pool,
    out: Path,
    batch_size: int | None,
    threads: int,
    device: str,
) -> Sweep:
    with resumable("the last checkpoints"), closing(pool), Display(out, scale.name) as display:
        return sweep(
            experiments,
            scale,
            pool,
            out=out,
            batch_size=batch_size,
            threads=threads,
            device=device,
            watch=display.watch,
            look=display.look,
        )


def _print(records: dict[Run, dict[str, Any]]) -> None:
    lengths = ", ".join(f"{each:,}" for each in sorted({each["evaluation"]["length"] for each in records.values()}))
    table = Table(
        Column("experiment", no_wrap=True),
        *("batch", "seed", "valid", "eval", "changes", "const", "paper", "min"),
        title=f"accuracy in validation, and in evaluation at {lengths} steps: of all answers, where they change, of "
        "the best constant one; what the paper has; minutes",
        box=SIMPLE,
        padding=0,
    )
    for run, record in records.items():
        evaluation, published = record["evaluation"], run.experiment.published
        table.add_row(
            record["experiment"],
            str(record["batch_size"]),
            str(record["seed"]),
            percent(record["training"]["validation_accuracy"]) + "%",
            percent(evaluation["average"]["mean"]) + "%",
            "" if evaluation["change"] is None else percent(evaluation["change"]) + "%",
            percent(evaluation["constant"]) + "%",
            "" if published is None else f"{published[0]:.1f}%",
            f"{(record['training']['seconds'] + evaluation['seconds']) / 60:.1f}",
        )
    Console().print(table)
