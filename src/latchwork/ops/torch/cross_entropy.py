"""The head and its cross-entropy in plain torch, a few rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor

BYTES = 4 << 20  # of logits at a time: they stay in the cache from the product to the gradient
FEWEST_ROWS = 256  # at a time: fewer make the product for the weight's gradient inefficient


def unfit(hidden: Tensor) -> None:
    """Nothing: this backend takes every tensor."""


def losses(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    count: Tensor,
    grad_hidden: Tensor | None,
    grad_weight: Tensor | None,
) -> Tensor:
    """The sum of the losses; writes the gradients of their mean. A target of -1 is left out."""
    rows = max(FEWEST_ROWS, BYTES // (weight.shape[0] * hidden.element_size()))
    total = hidden.new_zeros(())
    for start in range(0, hidden.shape[0], rows):
        piece = slice(start, start + rows)
        kept, wanted = targets[piece, None] >= 0, targets[piece, None].clamp(min=0)
        logits = hidden[piece] @ weight.t()
        best = logits.amax(-1, keepdim=True)
        right = logits.gather(1, wanted)
        sums = logits.sub_(best).exp_().sum(-1, keepdim=True)
        total += torch.where(kept, sums.log() + best - right, 0).sum()
        if grad_hidden is None and grad_weight is None:
            continue
        share = kept.to(logits.dtype) / count
        gradient = logits.mul_(share / sums).scatter_add_(1, wanted, -share)
        if grad_hidden is not None:
            torch.mm(gradient, weight, out=grad_hidden[piece])
        if grad_weight is not None:
            grad_weight.addmm_(gradient.t(), hidden[piece])
    return total
