"""Sampling from a language model, one token at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from latchwork.modules.state import State
from latchwork.ops import distributed

if TYPE_CHECKING:
    from latchwork.models.language_model import MinMaxRNC_LM

Prompt = Tensor | Sequence[int] | Sequence[Sequence[int]] | Sequence[Tensor]


def align_prompts(prompt: Prompt, device: torch.device) -> tuple[Tensor, Tensor]:
    """tokens (B, T) with the shorter prompts moved to the right end, and reset (B, T), true where each begins.

    With that reset nothing of the padding on the left is seen.

    >>> tokens, reset = align_prompts([[5, 6, 7], [8]], torch.device("cpu"))
    >>> tokens.tolist(), reset.int().tolist()
    ([[5, 6, 7], [0, 0, 8]], [[1, 0, 0], [0, 0, 1]])
    """
    if isinstance(prompt, Tensor):
        if prompt.dim() not in (1, 2):
            raise ValueError(f"prompt must be (T,) or (B, T); got {tuple(prompt.shape)}")
        rows = list(prompt.unsqueeze(0) if prompt.dim() == 1 else prompt)
    else:
        rows = [_row(each) for each in ([prompt] if len(prompt) and isinstance(prompt[0], int) else prompt)]
    if not rows or any(row.dim() != 1 or not len(row) or row.dtype not in (torch.int64, torch.int32) for row in rows):
        kinds = ", ".join(sorted({f"{row.dtype} {tuple(row.shape)}" for row in rows})) or "nothing"
        raise ValueError(
            f"prompt must be token numbers: one or more rows of at least one, int64 or int32; got {kinds:.200}"
        )
    T = max(map(len, rows))
    tokens = torch.zeros(len(rows), T, dtype=torch.long, device=device)
    reset = torch.zeros(len(rows), T, dtype=torch.bool, device=device)
    for number, row in enumerate(rows):
        tokens[number, T - len(row) :] = row
        reset[number, T - len(row)] = True
    return tokens, reset


def _row(values: Any) -> Tensor:
    try:
        if isinstance(values, Sequence) and any(isinstance(each, bool) for each in values):
            raise TypeError("a bool is no token")  # torch would take it for a number
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"prompt must be token numbers, int64 or int32; got {values!r:.60}: {error}") from None


def choose_tokens(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> Tensor:
    """One token for each row of logits (B, V): the best at temperature 0, else drawn. A NaN is an error.

    top_k: only from the k best. top_p: only from the fewest that together have that probability.
    """
    best, token = logits.max(-1, keepdim=True)
    check_best(best)
    if temperature == 0:
        return token.squeeze(-1)
    logits = (logits.float() - best.float()) / temperature  # so that a small temperature does not overflow
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p is not None and top_p < 1:
        ordered, order = logits.sort(-1, descending=True)
        probability = ordered.softmax(-1)
        outside = probability.cumsum(-1) - probability >= top_p  # what came before was enough
        outside[:, 0] = False  # a probability may be too small for float32
        logits = logits.masked_fill(outside.gather(-1, order.argsort(-1)), -torch.inf)
    logits = logits.nan_to_num(0.0, neginf=-torch.inf)  # the best, 0 / 0 at a temperature too small for float32
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def check_best(best: Tensor) -> None:
    """Raise an error unless the largest logit of each row is finite; a NaN counts as the largest."""
    if not best.isfinite().all():
        raise FloatingPointError(
            f"the largest logit of each row must be finite, to choose a token; got {best[~best.isfinite()][0].item()}: "
            "the weights, or the state after this prompt, hold NaN or infinite values"
        )


def generate_stream(
    model: MinMaxRNC_LM,
    prompt: Prompt,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_token: int | None = None,
) -> Iterator[Tensor]:
    """`generate` as an iterator: the new tokens (B,) of each step, as soon as they are drawn."""
    distributed.refuse("generation")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0; got {max_new_tokens}")
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0; got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, or None; got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be more than 0 and at most 1, or None; got {top_p}")
    device = model.embedding.weight.device
    tokens, reset = align_prompts(prompt, device)
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    return _steps(model, tokens, reset, max_new_tokens, temperature, top_k, top_p, generator, stop_token)


def _steps(
    model: MinMaxRNC_LM,
    tokens: Tensor,
    reset: Tensor,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
    stop_token: int | None,
) -> Iterator[Tensor]:
    stopped = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    state: State | None = None
    begin: Tensor | None = reset
    for _ in range(max_new_tokens):
        with torch.no_grad(), _eval(model):
            y, state = model.hidden(tokens, state, reset=begin)
            new = choose_tokens(model.head(y[:, -1:])[:, 0], temperature, top_k, top_p, generator)
        if stop_token is not None:
            new = new.masked_fill(stopped, stop_token)
            stopped = stopped | (new == stop_token)
        yield new
        if stopped.all():
            return
        tokens, begin = new.unsqueeze(1), None


@contextmanager
def _eval(model: torch.nn.Module) -> Iterator[None]:
    """All parts in eval mode within the block; afterwards each has its own mode again."""
    training = [part for part in model.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
