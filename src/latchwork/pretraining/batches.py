"""Which tokens a step sees: a function of seed, step and row alone, however many processes share the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from latchwork.pretraining.config import PretrainingConfig, at
from latchwork.training.seeds import generator


class Split(Protocol):
    """What is read: `corpus.TokenSplit`."""

    starts: NDArray[numpy.int64]

    def __len__(self) -> int:
        """Tokens."""

    def read(self, start: int, length: int) -> NDArray[numpy.int64]:
        """Tokens from a place on."""


@dataclass(frozen=True)
class Batch:
    """Windows of the text: tokens (B, T), and as targets the tokens that follow each.

    reset: (B, T), where a document begins. carried: whether the windows go on where those of the step before ended.
    """

    tokens: Tensor
    targets: Tensor
    reset: Tensor | None = None
    carried: bool = False


def rows_of(config: PretrainingConfig, step: int) -> int:
    """The sequences that a step sees, of all processes together."""
    return config.batch.micro * at(config.batch.accumulation, step)


def share(rows: int, rank: int, world: int) -> range:
    """The rows of one process: as many as of every other, side by side."""
    if rows % world:
        raise ValueError(f"micro x accumulation must be a multiple of the {world} processes; it is {rows}")
    return range(rank * rows // world, (rank + 1) * rows // world)


def places(config: PretrainingConfig, tokens: int, step: int) -> NDArray[numpy.int64]:
    """Where the windows of all rows of a step begin.

    Every place where a window fits is as likely as any other. With tbptt, one place in so many steps is drawn, for
    windows that follow each other from there.
    """
    context, stream = config.batch.context, config.tbptt or 1
    last = tokens - stream * context - 1
    if last < 0:
        raise ValueError(
            f"the split must have at least {stream * context + 1} tokens, for {stream} windows of {context} and the "
            f"token that follows; it has {tokens}"
        )
    draw = generator(config.seed, "train", step // stream)
    first = draw.integers(0, last + 1, size=rows_of(config, step))
    return first + step % stream * context


def read_batches(config: PretrainingConfig, split: Split, step: int, rank: int = 0, world: int = 1) -> list[Batch]:
    """The batches that one process runs in a step, one after the other, none of more than `micro` rows."""
    starts = places(config, len(split), step)[share(rows_of(config, step), rank, world)]
    context, resets = config.batch.context, config.tbptt is not None
    pieces = [starts[first : first + config.batch.micro] for first in range(0, len(starts), config.batch.micro)]
    return [_read(split, piece, context, resets, carries(config, step)) for piece in pieces]


def carries(config: PretrainingConfig, step: int) -> bool:
    """Whether the windows of a step go on where those of the step before ended, row by row."""
    if config.tbptt is None or step % config.tbptt == 0:
        return False
    return rows_of(config, step) == rows_of(config, step - 1)


def validation_batch(config: PretrainingConfig, split: Split, number: int) -> Batch:
    """One of the random batches that every validation of a run is made of."""
    context = config.batch.context
    if len(split) <= context:
        raise ValueError(f"the validation split must have more than {context} tokens; it has {len(split)}")
    draw = generator(config.seed, "validation", number)
    starts = draw.integers(0, len(split) - context, size=config.validation.batch_size)
    return _read(split, starts, context, False, False)


def _read(split: Split, starts: NDArray[Any], context: int, resets: bool, carried: bool) -> Batch:
    windows = torch.from_numpy(numpy.stack([split.read(int(start), context + 1) for start in starts]))
    reset = None
    if resets:
        where = starts[:, None] + numpy.arange(context)
        found = numpy.searchsorted(split.starts, where)
        known = found < len(split.starts)
        reset = torch.from_numpy(known & (split.starts[numpy.minimum(found, len(split.starts) - 1)] == where))
    return Batch(windows[:, :-1], windows[:, 1:], reset, carried)
