"""`latchwork export`: a run's model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="a folder that `latchwork pretrain` made, or its folder `model`")],
    hf: Annotated[Path, typer.Option(help="where the Hugging Face files go: model, configuration, tokenizer")],
) -> None:
    """Write a pretrained model in the Hugging Face format, which `lm_eval --model hf` takes too."""
    from latchwork.pretraining.export import export_huggingface

    folder = run / "model" if (run / "model").is_dir() else run
    try:
        export_huggingface(folder, hf)
    except (ValueError, FileNotFoundError, ImportError) as error:
        raise typer.BadParameter(str(error), param_hint="RUN") from None
    typer.echo(hf)
