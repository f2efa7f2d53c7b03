"""`latchwork sample`: text from a pretrained model."""

from __future__ import annotations

from typing import Annotated

import typer

from latchwork.cli.options import MOST, Model, number
from latchwork.cli.options import device as check_device


def sample(
    model: Model,
    prompt: Annotated[str, typer.Option(help="what the text begins with")] = "",
    length: Annotated[int, typer.Option(min=0, max=MOST, help="tokens to draw, at most")] = 500,
    temperature: Annotated[float, typer.Option(min=0, callback=number, help="0 takes the likeliest token")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, max=MOST, help="draw from the k likeliest only")] = None,
    top_p: Annotated[float | None, typer.Option(help="draw from the fewest that have this probability")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="the same seed, the same text")] = None,
    stop: Annotated[bool, typer.Option(help="stop where a document ends")] = True,
    device: Annotated[str, typer.Option(callback=check_device, help="cpu or cuda")] = "cpu",
) -> None:
    """Print a prompt and what a pretrained model writes after it, as it is drawn."""
    from latchwork.evaluation.sampling import load_run, sample_text

    if top_p is not None and not 0 < top_p <= 1:
        raise typer.BadParameter(f"must be more than 0 and at most 1; got {top_p}", param_hint="--top-p")
    if prompt != prompt.encode(errors="ignore").decode():
        raise typer.BadParameter("must be text in UTF-8", param_hint="--prompt")
    network, tokenizer = load_run(model, device)
    pieces = sample_text(
        network,
        tokenizer,
        prompt,
        length,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop_at_end=stop,
    )
    typer.echo(prompt, nl=False)
    try:
        for piece in pieces:
            typer.echo(piece, nl=False)
    finally:
        typer.echo()
