"""`latchwork pretrain`: train a language model, or go on where it was cut off."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer


def pretrain(
    config: Annotated[str, typer.Argument(help="a name, as paper-112m or char-1m, or a .json or .toml file")],
    corpus: Annotated[Path | None, typer.Option(help="a folder that `latchwork data prepare` made")] = None,
    out: Annotated[Path | None, typer.Option(help="the run's folder")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="field=value, as batch.micro=8; recorded with the run")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: cuda if it is here")] = None,
    strategy: Annotated[
        str, typer.Option(help="of several processes: ddp, each with all weights, or fsdp, each with a part")
    ] = "ddp",
    threads: Annotated[int | None, typer.Option(min=1, help="of each process on the CPU")] = None,
    peak_tflops: Annotated[float | None, typer.Option(help="of one device, for MFU; default: measured")] = None,
    show: Annotated[bool, typer.Option("--show", help="print the configuration as JSON, and do nothing")] = False,
) -> None:
    """Pretrain a language model. The same command goes on after an interruption.

    On several processes or machines: torchrun --nproc-per-node N -m latchwork pretrain ...
    """
    from latchwork.pretraining.config_file import read_config

    try:
        chosen = read_config(config, changes or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="CONFIG") from None
    if show:
        typer.echo(json.dumps(chosen.to_dict(), indent=1))
        return
    for name, value in {"--corpus": corpus, "--out": out}.items():
        if value is None:
            raise typer.BadParameter("must be given", param_hint=name)
    if strategy not in ("ddp", "fsdp"):
        raise typer.BadParameter(f"must be ddp or fsdp; got {strategy!r}", param_hint="--strategy")

    import torch

    here = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if here not in ("cpu", "cuda") or (here == "cuda" and not torch.cuda.is_available()):
        raise typer.BadParameter(f"{here!r} is not here", param_hint="--device")
    if threads is not None:
        torch.set_num_threads(threads)
    assert corpus is not None
    assert out is not None
    _print(_run(chosen, corpus, out, here, strategy, None if peak_tflops is None else peak_tflops * 1e12), out)


def _run(config: Any, corpus: Path, out: Path, device: str, strategy: Any, peak: float | None) -> dict[str, Any]:
    from latchwork.pretraining.display import Display
    from latchwork.pretraining.loop import DivergedError
    from latchwork.pretraining.run import pretrain as run

    first = int(os.environ.get("RANK", "0")) == 0
    try:
        if not first:
            return run(config, corpus, out, device=device, strategy=strategy, peak=peak)
        with Display(config.name, config.steps) as display:
            options = {"peak": peak, "watch": display.watch, "tell": display.tell}
            return run(config, corpus, out, device=device, strategy=strategy, **options)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on from the last checkpoint", err=True)
        raise typer.Exit(130) from None
    except DivergedError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except (ValueError, FileNotFoundError, ImportError) as error:
        raise typer.BadParameter(str(error)) from None


def _print(record: dict[str, Any], out: Path) -> None:
    if not record:  # only the first process has it
        return
    validation = record["validation"]
    typer.echo(
        f"{record['config']['name']}: {record['parameters']:,} parameters, {record['step']:,} steps, "
        f"{record['tokens']:,} tokens in {record['seconds'] / 60:.1f} minutes; "
        f"validation loss {validation['mean']:.4f} ± {validation['margin']:.4f}; {out / 'model'}"
    )
