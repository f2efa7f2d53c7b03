"""How often a model is right, over many sequences that fit into memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.tasks.task import IGNORE, Batch

ROWS, CHUNK = 32, 512  # sequences and steps run at once: the logits of a large vocabulary stay small


class Accuracy(NamedTuple):
    """loss: mean cross-entropy over the answers asked for. correct: how many were right, of `asked`."""

    loss: float
    correct: int
    asked: int

    @property
    def accuracy(self) -> float:
        """The share of right answers; 0 if none was asked for."""
        return self.correct / max(1, self.asked)


@torch.no_grad()
def measure(model: nn.Module, batch: Batch, lengths: Tensor | None = None) -> Accuracy:
    """Run the model over the batch, in eval mode, some sequences and steps at a time; then restore its mode.

    lengths: (B,), where each sequence ends; sequences of like length are then run together, and not beyond their end.
    """
    training = model.training
    model.eval()
    device = next(model.parameters()).device
    loss, correct, asked = 0.0, 0, 0
    rows = len(batch.tokens)
    ends = torch.full((rows,), batch.tokens.shape[1]) if lengths is None else lengths
    for group in torch.argsort(ends, stable=True).split(ROWS):  # type: ignore[no-untyped-call]
        state = None
        longest = int(ends[group].max()) if len(group) else 0
        for first in range(0, longest, CHUNK):
            steps = slice(first, min(first + CHUNK, longest))
            logits, state = model(batch.tokens[group, steps].to(device), state)
            targets = batch.targets[group, steps].to(device)
            kept = targets != IGNORE
            logits, targets = logits[kept], targets[kept]
            loss += float(F.cross_entropy(logits.float(), targets, reduction="sum").double())
            best, said = logits.max(-1)  # a NaN counts as the largest, and is no answer
            correct += int(((said == targets) & ~best.isnan()).sum())
            asked += len(targets)
    model.train(training)
    return Accuracy(loss / max(1, asked), correct, asked)
