"""How often a model is right, over many sequences that fit into memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.ops.torch.cross_entropy import first_of_largest
from latchwork.tasks.task import IGNORE, Batch

FAR = 0.1  # how much better training mode may be
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


class ModeGap(NamedTuple):
    """The accuracy on the same sequences with dropout on (training mode) and off (evaluation mode)."""

    training: float
    evaluation: float

    @property
    def warning(self) -> str | None:
        """What to say if the network is right only with dropout on; None if all is well."""
        if self.training - self.evaluation <= FAR:
            return None
        return (
            f"the network is right on {self.training:.1%} of answers in training mode and on {self.evaluation:.1%} in "
            "evaluation mode, on the same data: it reads dropout as a signal. A latch keeps the extreme of the noise "
            "over time. Train without dropout before the recurrence (ffn_dropout=0)"
        )


def mode_gap(model: nn.Module, batch: Batch, lengths: Tensor | None = None) -> ModeGap | None:
    """Compare both modes on a batch; None for a model without dropout, in which they are the same."""
    if not any(isinstance(each, nn.Dropout) and each.p > 0 for each in model.modules()):
        return None
    both = [measure(model, batch, lengths, training=mode).accuracy for mode in (True, False)]
    return ModeGap(*both)


@torch.no_grad()
def measure(model: nn.Module, batch: Batch, lengths: Tensor | None = None, *, training: bool = False) -> Accuracy:
    """Run the model over the batch, in evaluation mode, some sequences and steps at a time; then restore its mode.

    lengths: (B,), where each sequence ends; sequences of like length are then run together, and not beyond their end.
    training: run in training mode instead, with dropout on.
    """
    before = model.training
    model.train(training)
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
            correct += int((first_of_largest(logits) == targets).sum())
            asked += len(targets)
    model.train(before)
    return Accuracy(loss / max(1, asked), correct, asked)
