"""Text from a language model, as it is drawn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.data.corpus import TOKENIZER
from latchwork.data.tokenizers import BYTES, CHARACTERS, SUBWORDS, Tokenizer, load_tokenizer
from latchwork.load import find_folder, load_model
from latchwork.models.generation import choose_tokens
from latchwork.models.language_model import MinMaxRNC_LM


def load_run(path: str | os.PathLike[str], device: str = "cpu") -> tuple[nn.Module, Tokenizer]:
    """The model and the tokenizer of a run's folder, or of the folder `model` in it."""
    model = load_model(path, device)
    folder = find_tokenizer(path)
    tokenizer = load_tokenizer(folder)
    size = model.vocab_size if isinstance(model, MinMaxRNC_LM) else model.vocabulary
    if tokenizer.vocabulary > size:  # type: ignore[operator]
        raise ValueError(f"{folder}: the tokenizer has {tokenizer.vocabulary} tokens, the model knows {size}")
    return model, tokenizer


def find_tokenizer(path: str | os.PathLike[str]) -> Path:
    """The folder of the tokenizer of a model; a model that was not trained on text has none, which is an error."""
    from latchwork import zoo

    known = None if str(path) in zoo.names() else find_folder(path)
    for folder in () if known is None else (known / TOKENIZER, known):
        if any((folder / name).is_file() for name in (CHARACTERS, BYTES, SUBWORDS)):
            return folder
    raise ValueError(f"{path} has no tokenizer: it was trained on the symbols of a task, not on text")


def first_tokens(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The tokens of a prompt. An empty one is the end of a document, after which one begins; else a new line."""
    if prompt:
        return [int(token) for token in tokenizer.encode(prompt)]
    if tokenizer.end is not None:
        return [tokenizer.end]
    try:
        return [int(token) for token in tokenizer.encode("\n")]
    except ValueError:
        raise ValueError("prompt must not be empty: this vocabulary has neither an end nor a new line") from None


def sample_text(
    model: nn.Module,
    tokenizer: Tokenizer,
    prompt: str,
    length: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_at_end: bool = True,
) -> Iterator[str]:
    """What follows the prompt, piece by piece as tokens are drawn: whole characters, at most `length` tokens.

    Options as in MinMaxRNC_LM.generate. stop_at_end: stop where a document ends.
    """
    tokens = first_tokens(tokenizer, prompt)
    options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    steps = (
        model.generate_stream(tokens, length, **options)
        if isinstance(model, MinMaxRNC_LM)
        else _steps(model, tokens, length, **options)
    )
    return _pieces(steps, tokenizer, stop_at_end)


def _pieces(steps: Iterator[Tensor], tokenizer: Tokenizer, stop_at_end: bool) -> Iterator[str]:
    text = tokenizer.stream()
    for step in steps:
        token = int(step[0])
        if token == tokenizer.end and stop_at_end:
            break
        if token < tokenizer.vocabulary and (piece := text.push(token)):
            yield piece
    if piece := text.finish():
        yield piece


def _steps(
    model: nn.Module,
    tokens: Sequence[int],
    length: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> Iterator[Tensor]:
    """`generate_stream` for any model (tokens, state) -> (logits, state)."""
    device = next(model.parameters()).device
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    state: Any = None
    here = torch.tensor([list(tokens)], device=device)
    for _ in range(length):
        with torch.no_grad():
            logits, state = model(here, state)
            new = choose_tokens(logits[:, -1], temperature, top_k, top_p, generator)
        yield new
        here = new.unsqueeze(1)
