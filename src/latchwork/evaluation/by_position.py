"""How well a language model predicts a text, by how much of it the model has read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import exp, inf, log
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.data.corpus import TokenSplit

LOGITS = 2**25  # how many are there at a time: 128 MB in float32
FIRST = 64  # tokens of the first chunk, which shows how many logits a token has


def evaluate_by_position(
    model: nn.Module,
    split: TokenSplit,
    *,
    length: int,
    windows: int | None = None,
    rows: int = 8,
    limit: int | None = None,
    byte_lengths: NDArray[numpy.int64] | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Run a model, (tokens, state) -> (logits, state), over windows of a text, each from a fresh state, in chunks.

    length: the tokens that a window lets it read; after c of them it has a context of c, and predicts the next.
    windows: spread evenly over the text; as many as it has room for if None. rows: windows at a time. limit: the
    longest context that the model can take, if it has one; beyond it there is nothing to report. byte_lengths: see
    Tokenizer; without them a token counts as many bytes as it has on average in this text.

    Memory does not grow with length, unless the model's state does. Returns plain values, as JSON takes them, losses
    in nats: loss, perplexity, bits_per_byte over all tokens predicted; positions: for the contexts from low to high,
    both included, the tokens predicted and their mean loss, None where there are none or it is not a number.
    """
    _check(split, length, windows, rows, limit)
    windows = (len(split) - 1) // length if windows is None else windows
    starts = numpy.linspace(0, len(split) - 1 - length, windows).astype(int)
    reach = length if limit is None else min(length, limit)
    nats, counted = numpy.zeros(reach), numpy.zeros(windows)
    text_bytes, done = 0.0, 0
    device, training = next(model.parameters()).device, model.training
    average = split.bytes / max(1, len(split))
    model.eval()
    try:
        for first in range(0, windows, rows):
            here = starts[first : first + rows]
            for begin, losses, targets in _run(model, split, here, reach, device):
                nats[begin : begin + losses.shape[1]] += losses.sum(0)
                counted[first : first + rows] += losses.sum(1)
                text_bytes += average * targets.size if byte_lengths is None else int(byte_lengths[targets].sum())
                done += targets.size
                if watch is not None:
                    watch(done, windows * reach)
    finally:
        model.train(training)
    total = float(nats.sum())
    spread = float(numpy.std(counted / reach, ddof=1)) / windows**0.5 if windows > 1 else None
    return {
        "length": length,
        "windows": windows,
        "tokens": done,
        "loss": _number(total / done),
        "standard_error": None if spread is None else _number(spread),
        "perplexity": _number(exp(total / done)) if total / done < 700 else None,
        "bits_per_byte": _number(total / log(2) / text_bytes) if text_bytes else None,
        "positions": [_bucket(nats, low + 1, high, windows) for low, high in pairwise(_edges(length))],
    }


def _run(
    model: nn.Module, split: TokenSplit, starts: NDArray[numpy.int64], reach: int, device: torch.device
) -> Iterator[tuple[int, NDArray[numpy.float64], NDArray[numpy.int64]]]:
    """For each chunk of some windows: its first position, its losses (rows, T) and its targets."""
    state: Any = None
    begin, chunk = 0, FIRST
    while begin < reach:
        size = min(chunk, reach - begin)
        tokens = numpy.stack([split.read(int(start) + begin, size + 1) for start in starts])
        with torch.no_grad():
            logits, state = model(torch.from_numpy(tokens[:, :-1]).to(device), state)
            losses = _losses(logits, torch.from_numpy(tokens[:, 1:]).to(device))
        yield begin, losses.double().cpu().numpy(), tokens[:, 1:]
        begin += size
        chunk = max(1, min(4096, LOGITS // (logits.shape[0] * logits.shape[2])))


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)


def _edges(length: int) -> list[int]:
    """0, 1, 2, 4, 8, ..., length.

    >>> _edges(1), _edges(8), _edges(9)
    ([0, 1], [0, 1, 2, 4, 8], [0, 1, 2, 4, 8, 9])
    """
    powers = [2**power for power in range(length.bit_length()) if 2**power < length]
    return [0, *powers, length]


def _bucket(nats: NDArray[numpy.float64], low: int, high: int, windows: int) -> list[Any]:
    inside = nats[low - 1 : high]
    return [low, high, len(inside) * windows, _number(float(inside.mean()) / windows) if len(inside) else None]


def _number(value: float) -> float | None:
    """JSON knows no NaN and no infinity."""
    return value if -inf < value < inf else None


def _check(split: TokenSplit, length: int, windows: int | None, rows: int, limit: int | None) -> None:
    if not 1 <= length < max(2, len(split)) or len(split) < 2:
        raise ValueError(f"length must be at least 1 and less than the {len(split)} tokens of the split; got {length}")
    for name, value in {"windows": windows, "rows": rows, "limit": limit}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    if windows is not None and windows > len(split):
        raise ValueError(f"windows must be at most the {len(split)} tokens of the split; got {windows}")
