"""`latchwork export`: a trained model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latchwork.cli.options import Model, check_out, minmax_model
from latchwork.cli.options import path as read_path
from latchwork.extras import need


def export(
    model: Model,
    hf: Annotated[
        Path | None,
        typer.Option(parser=read_path, help="a folder for the Hugging Face files: model, configuration, tokenizer"),
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(parser=read_path, help="a file for an ONNX graph of one step, its state in and out")
    ] = None,
) -> None:
    """Write a model in the Hugging Face format, which `lm_eval --model hf` takes too, or as an ONNX graph."""
    if (hf is None) == (onnx is None):
        raise typer.BadParameter("give one of them", param_hint="--hf or --onnx")
    if hf is not None:
        from latchwork.interop.huggingface import export_huggingface

        need("hf", "transformers", "accelerate")
        check_out(hf, folder=True)
        export_huggingface(model, hf)
        typer.echo(hf)
    if onnx is not None:
        from latchwork.models.export import export_step

        need("onnx", "onnx", "onnxscript")
        check_out(onnx, folder=False)
        export_step(minmax_model(model, "export --onnx"), onnx)
        typer.echo(onnx)
