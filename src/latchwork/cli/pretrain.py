"""`latchwork pretrain`: train a language model, or resume its training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from latchwork.baselines.registry import packages
from latchwork.cli.options import MOST_THREADS, check_out, number, resumable
from latchwork.cli.options import device as check_device
from latchwork.cli.options import path as read_path
from latchwork.errors import NO
from latchwork.extras import need

Strategy = Literal["ddp", "fsdp"]


def pretrain(
    config: Annotated[str, typer.Argument(help="a name, as paper-112m or char-1m, or a .json or .toml file")],
    corpus: Annotated[
        Path | None, typer.Option(parser=read_path, help="a folder that `latchwork data prepare` made")
    ] = None,
    out: Annotated[Path | None, typer.Option(parser=read_path, help="the run's folder")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="field=value, as batch.micro=8; recorded with the run")
    ] = None,
    device: Annotated[
        str | None, typer.Option(callback=check_device, help="cpu or cuda; default: cuda if it is here")
    ] = None,
    strategy: Annotated[
        Strategy, typer.Option(help="of several processes: ddp, each with all weights, or fsdp, each with a part")
    ] = "ddp",
    threads: Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="of each process on the CPU")] = None,
    peak_tflops: Annotated[
        float | None, typer.Option(min=0.001, callback=number, help="of one device, for MFU; default: measured")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="print the configuration as JSON, and do nothing")] = False,
) -> None:
    """Pretrain a language model. After an interruption the same command resumes.

    On several processes or machines: torchrun --nproc-per-node N -m latchwork pretrain ...
    """
    from latchwork.training.config_file import read_config

    chosen = read_config(config, changes or [])
    if show:
        typer.echo(json.dumps(chosen.to_dict(), indent=1))
        return
    if corpus is None or out is None:
        raise typer.BadParameter("must be given", param_hint="--corpus" if corpus is None else "--out")
    need("lm", "scipy", "tensorboard")
    need("baselines", *packages(chosen.model.kind))
    check_out(out, folder=True)

    import torch

    here = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if threads is not None:
        torch.set_num_threads(threads)
    _print(_run(chosen, corpus, out, here, strategy, None if peak_tflops is None else peak_tflops * 1e12), out)


def _run(config: Any, corpus: Path, out: Path, device: str, strategy: Any, peak: float | None) -> dict[str, Any]:
    from latchwork.training.display import Display
    from latchwork.training.engine import DivergedError
    from latchwork.training.pretrain import pretrain as run

    try:
        with resumable("the last checkpoint"):
            if os.environ.get("RANK", "0") != "0":
                return run(config, corpus, out, device=device, strategy=strategy, peak=peak)
            with Display(config.name) as display:
                options = {"peak": peak, "watch": display.watch, "tell": display.tell}
                return run(config, corpus, out, device=device, strategy=strategy, **options)  # type: ignore[arg-type]
    except DivergedError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(NO) from None


def _print(record: dict[str, Any], out: Path) -> None:
    if not record:  # only the first process has it
        return
    validation = record["validation"]
    typer.echo(
        f"{record['config']['name']}: {record['parameters']:,} parameters, {record['step']:,} steps, "
        f"{record['tokens']:,} tokens in {record['seconds'] / 60:.1f} minutes; "
        f"validation loss {validation['mean']:.4f} ± {validation['margin']:.4f}; {out / 'model'}"
    )
