"""`latchwork export`: a run's model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latchwork.cli.options import check_out
from latchwork.cli.options import path as read_path
from latchwork.extras import need


def export(
    run: Annotated[
        Path, typer.Argument(parser=read_path, help="a folder that `latchwork pretrain` made, or its folder `model`")
    ],
    hf: Annotated[
        Path,
        typer.Option(parser=read_path, help="where the Hugging Face files go: model, configuration, tokenizer"),
    ],
) -> None:
    """Write a pretrained model in the Hugging Face format, which `lm_eval --model hf` takes too."""
    from latchwork.data.export import export_huggingface

    need("hf", "transformers", "accelerate")
    check_out(hf, folder=True)
    export_huggingface(run / "model" if (run / "model").is_dir() else run, hf)
    typer.echo(hf)
