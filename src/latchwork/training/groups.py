"""A batch as groups of sequences of like length, so that little of it is padding."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.tasks.task import IGNORE, Batch

TOGETHER = 16  # sequences run at once; a batch is the sum of such groups


def groups(data: Batch, ends: Tensor, rows: Tensor) -> list[tuple[Batch, float]]:
    """Rows of like length together, cut at their ends, each group with its share of the answers."""
    asked, found = max(1, int((data.targets[rows] != IGNORE).sum())), []
    for group in rows[torch.argsort(ends[rows], stable=True)].split(TOGETHER):  # type: ignore[no-untyped-call]
        longest = max(1, int(ends[group].max()))
        piece = Batch(data.tokens[group, :longest], data.targets[group, :longest])
        found.append((piece, int((piece.targets != IGNORE).sum()) / asked))
    return [each for each in found if each[1]] or found[:1]  # a group without answers has no gradient


def ends_of(batch: Batch) -> Tensor:
    """For each row the number of steps up to its last answer."""
    steps = torch.arange(1, batch.targets.shape[1] + 1)
    return ((batch.targets != IGNORE) * steps).amax(1)
