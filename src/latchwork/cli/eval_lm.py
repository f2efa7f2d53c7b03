"""`latchwork eval-lm`: how well a pretrained model predicts a text."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from latchwork.cli.options import Model, check_out
from latchwork.cli.options import device as check_device
from latchwork.cli.options import path as read_path
from latchwork.files import write_json

LENGTH = 65536


def eval_lm(
    model: Model,
    corpus: Annotated[Path, typer.Option(parser=read_path, help="a folder that `latchwork data prepare` made")],
    split: Annotated[Literal["validation", "train"], typer.Option(help="which part of the corpus")] = "validation",
    length: Annotated[
        int | None, typer.Option(min=1, help="the longest context", show_default="65536, or what the split has")
    ] = None,
    windows: Annotated[
        int | None, typer.Option(min=1, help="pieces of text of that length", show_default="as many as there are")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="of them at a time")] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="of the context that the model can take, if any")] = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=read_path, help="a JSON file for the result", show_default="MODEL/eval.json"),
    ] = None,
    device: Annotated[str, typer.Option(callback=check_device, help="cpu or cuda")] = "cpu",
) -> None:
    """Loss, perplexity and bits per byte, and the loss by how much the model has read, in constant memory."""
    from latchwork.data.corpus import Corpus
    from latchwork.data.tokenizers import describe_tokenizer
    from latchwork.evaluation.by_position import evaluate_by_position
    from latchwork.evaluation.sampling import load_run

    text = Corpus(corpus)
    network, tokenizer = load_run(model, device)
    if describe_tokenizer(tokenizer)["sha256"] != text.manifest["tokenizer"]["sha256"]:
        raise ValueError(f"{corpus} must have the tokenizer of {model}; it has another one")
    file = Path(model) / "eval.json" if out is None else out
    check_out(file, folder=False)
    tokens = text.validation if split == "validation" else text.train
    tokens.verify(text.vocabulary)
    length = min(LENGTH, len(tokens) - 1) if length is None else length
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"up to {length:,} tokens of context", total=None)
        result = evaluate_by_position(
            network,
            tokens,
            length=length,
            windows=windows,
            rows=rows,
            limit=limit,
            byte_lengths=tokenizer.byte_lengths(),
            watch=lambda done, total: progress.update(task, completed=done, total=total),
        )
    write_json(file, {"split": split, "tokenizer": text.manifest["tokenizer"]["sha256"], **result})
    _print(result, file)


def _print(result: dict[str, Any], file: Path) -> None:
    table = Table("context", "tokens predicted", "loss", "perplexity")
    for low, high, count, loss in result["positions"]:
        context = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        table.add_row(context, f"{count:,}", *_loss_and_perplexity(loss))
    loss, perplexity = _loss_and_perplexity(result["loss"])
    table.add_row("all", f"{result['tokens']:,}", loss, perplexity, style="bold")
    console = Console()
    console.print(table)
    bits, error = result["bits_per_byte"], result["standard_error"]
    spread = "" if error is None else f" ± {error:.4f} (standard error)"
    per_byte = "" if bits is None else f", {bits:.4f} bits per byte"
    pieces = "1 window" if result["windows"] == 1 else f"{result['windows']:,} windows"
    console.print(
        f"loss {loss}{spread}, perplexity {perplexity}{per_byte}; {pieces} of {result['length']:,} tokens; {file}",
        soft_wrap=True,
    )


def _loss_and_perplexity(loss: float | None) -> tuple[str, str]:
    if loss is None:
        return "not possible", ""
    return f"{loss:.4f}", f"{exp(loss):,.3f}" if loss < 50 else "huge"
