"""`latchwork sample`: text from a pretrained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def sample(
    path: Annotated[Path, typer.Argument(help="a folder that `latchwork pretrain` made, or its folder `model`")],
    prompt: Annotated[str, typer.Option(help="what the text begins with")] = "",
    length: Annotated[int, typer.Option(min=0, help="tokens to draw, at most")] = 500,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the likeliest token each time")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="draw from the k likeliest only")] = None,
    top_p: Annotated[float | None, typer.Option(help="draw from the fewest that have this probability")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="the same seed, the same text")] = None,
    stop: Annotated[bool, typer.Option(help="stop where a document ends")] = True,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
) -> None:
    """Print a prompt and what a pretrained model writes after it, as it is drawn."""
    from latchwork.pretraining.sampling import load_run, sample_text

    if top_p is not None and not 0 < top_p <= 1:
        raise typer.BadParameter(f"must be more than 0 and at most 1; got {top_p}", param_hint="--top-p")
    try:
        model, tokenizer = load_run(path, device)
        pieces = sample_text(
            model,
            tokenizer,
            prompt,
            length,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_at_end=stop,
        )
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(prompt, nl=False)
    try:
        for piece in pieces:
            typer.echo(piece, nl=False)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        typer.echo()
