"""The tokens of a step: a function of seed, step and row alone, for any number of processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from latchwork.seeds import generator
from latchwork.training.config import PretrainingConfig, at


class TokenSource(Protocol):
    """The part of `corpus.TokenSplit` that is used."""

    starts: NDArray[numpy.int64]

    def __len__(self) -> int:
        """Tokens."""

    def read(self, start: int, length: int) -> NDArray[numpy.int64]:
        """Tokens from a place on."""


@dataclass(frozen=True)
class Windows:
    """Windows of the text: tokens (B, T), and as targets the tokens that follow each.

    reset: (B, T), true where a document begins. carried: whether the windows continue those of the step before.
    """

    tokens: Tensor
    targets: Tensor
    reset: Tensor | None = None
    carried: bool = False


def rows_of(config: PretrainingConfig, step: int) -> int:
    """The number of sequences of a step, in all processes together."""
    return config.batch.micro * at(config.batch.accumulation, step)


def share(rows: int, rank: int, world: int) -> range:
    """The rows of one process. Every process has the same number."""
    if rows % world:
        raise ValueError(f"micro x accumulation must be a multiple of the {world} processes; it is {rows}")
    return range(rank * rows // world, (rank + 1) * rows // world)


def places(config: PretrainingConfig, tokens: int, step: int) -> NDArray[numpy.int64]:
    """The starts of the windows of all rows of a step.

    order "random": every start at which a window fits is equally likely. "epochs": the text is cut into windows, which
    are read in a random order; the next epoch cuts it elsewhere. With tbptt, a start is drawn every tbptt steps, and
    the windows between follow it.
    """
    stream = config.tbptt or 1
    length, rows = stream * config.batch.context, rows_of(config, step)
    _check_train(config, tokens)
    if config.batch.order == "random":
        first = generator(config.seed, "train", step // stream).integers(0, tokens - length, size=rows)
    else:
        windows = numpy.arange(rows) + windows_before(config, step // stream * stream)
        first = in_epochs(config.seed, tokens - 1, length, windows)
    return first + step % stream * config.batch.context


def check_splits(config: PretrainingConfig, train: int, validation: int) -> None:
    """Raise ValueError if a split has too few tokens: before the first step rather than at the first validation."""
    _check_train(config, train)
    _check_validation(config, validation)


def _check_train(config: PretrainingConfig, tokens: int) -> None:
    stream, context = config.tbptt or 1, config.batch.context
    if tokens <= stream * context:
        raise ValueError(
            f"the split must have at least {stream * context + 1} tokens, for {stream} windows of {context} and the "
            f"token that follows; it has {tokens}"
        )


def _check_validation(config: PretrainingConfig, tokens: int) -> None:
    if tokens <= config.batch.context:
        raise ValueError(f"the validation split must have more than {config.batch.context} tokens; it has {tokens}")


def windows_before(config: PretrainingConfig, step: int) -> int:
    """The number of windows drawn before a step at which windows are drawn."""
    stream, pieces = config.tbptt or 1, config.batch.accumulation
    ends = [start for start, _ in pieces[1:]] + [step]
    steps = [max(0, min(end, step) - start) for (start, _), end in zip(pieces, ends, strict=True)]
    return sum(config.batch.micro * times * (each // stream) for (_, times), each in zip(pieces, steps, strict=True))


def in_epochs(seed: int, tokens: int, length: int, windows: NDArray[Any]) -> NDArray[numpy.int64]:
    """The starts of windows, numbered from the first of a run. An epoch leaves out fewer than two windows."""
    many = max(1, (tokens - length + 1) // length)  # of an epoch: they fit wherever the first one starts
    orders = [epoch_order(seed, tokens, length, many, int(epoch)) for epoch in windows // many]
    return numpy.array([order[place] for order, place in zip(orders, windows % many, strict=True)])


@lru_cache(maxsize=2)  # a step may read the end of one and the beginning of the next
def epoch_order(seed: int, tokens: int, length: int, many: int, epoch: int) -> NDArray[numpy.int64]:
    """The starts of the windows of an epoch, in the order of reading."""
    draw = generator(seed, "epoch", epoch)
    cut = draw.integers(0, tokens - many * length + 1)
    return numpy.asarray(cut + length * draw.permutation(many))


def read_batches(
    config: PretrainingConfig, split: TokenSource, step: int, rank: int = 0, world: int = 1
) -> list[Windows]:
    """The batches that one process runs in a step, each of at most `micro` rows."""
    starts = places(config, len(split), step)[share(rows_of(config, step), rank, world)]
    context, resets = config.batch.context, config.tbptt is not None
    pieces = [starts[first : first + config.batch.micro] for first in range(0, len(starts), config.batch.micro)]
    return [_read(split, piece, context, resets, carries(config, step)) for piece in pieces]


def carries(config: PretrainingConfig, step: int) -> bool:
    """Whether each window of a step continues the one in the same row of the step before."""
    if config.tbptt is None or step % config.tbptt == 0:
        return False
    return rows_of(config, step) == rows_of(config, step - 1)


def validation_batch(config: PretrainingConfig, split: TokenSource, number: int) -> Windows:
    """One of the random batches of a validation, the same in every validation of a run."""
    context = config.batch.context
    _check_validation(config, len(split))
    draw = generator(config.seed, "validation", number)
    starts = draw.integers(0, len(split) - context, size=config.validation.batch_size)
    return _read(split, starts, context, False, False)


def _read(split: TokenSource, starts: NDArray[Any], context: int, resets: bool, carried: bool) -> Windows:
    windows = torch.from_numpy(numpy.stack([split.read(int(start), context + 1) for start in starts]))
    reset = None
    if resets:
        where = starts[:, None] + numpy.arange(context)
        found = numpy.searchsorted(split.starts, where)
        known = found < len(split.starts)
        reset = torch.from_numpy(known & (split.starts[numpy.minimum(found, len(split.starts) - 1)] == where))
    return Windows(windows[:, :-1], windows[:, 1:], reset, carried)
