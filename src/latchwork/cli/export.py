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
        Path,
        typer.Argument(
            parser=read_path, help="a folder that `latchwork pretrain` or `latchwork learn` made, or a model's"
        ),
    ],
    hf: Annotated[
        Path | None,
        typer.Option(parser=read_path, help="where the Hugging Face files go: model, configuration, tokenizer"),
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(parser=read_path, help="an ONNX file: one step, with the state as input and output")
    ] = None,
) -> None:
    """Write a model for other programs: as Hugging Face files, which `lm_eval --model hf` takes too, or as ONNX."""
    if (hf is None) == (onnx is None):
        raise typer.BadParameter("give one of them", param_hint="--hf or --onnx")
    folder = run / "model" if (run / "model").is_dir() else run
    if hf is not None:
        from latchwork.pretraining.export import export_huggingface

        need("hf", "transformers", "accelerate")
        check_out(hf, folder=True)
        export_huggingface(folder, hf)
        typer.echo(hf)
    if onnx is not None:
        from latchwork.models import MinMaxRNC_LM
        from latchwork.models.export import export_step

        need("onnx", "onnx", "onnxscript")
        check_out(onnx, folder=False)
        export_step(MinMaxRNC_LM.load(folder), onnx)
        typer.echo(onnx)
