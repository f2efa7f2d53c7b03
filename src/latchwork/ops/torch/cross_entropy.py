"""The head and its cross-entropy or best class in plain torch, a few rows at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

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
    rows = _rows_at_a_time(hidden, weight)
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


def best(
    hidden: Tensor,
    weight: Tensor,
    norm: str,
    epsilon: float,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
) -> Tensor:
    """The number of the largest logit of each row, or -1 where a logit is a NaN."""
    found, rows = hidden.new_empty(hidden.shape[0], dtype=torch.int64), _rows_at_a_time(hidden, weight)
    for start in range(0, hidden.shape[0], rows):
        piece = slice(start, start + rows)
        x = normed(hidden[piece], norm, epsilon, norm_weight, norm_bias)
        found[piece] = first_of_largest(F.linear(x, weight))
    return found


def normed(x: Tensor, norm: str, epsilon: float, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """The norm of each row of x; norm is "none", "layernorm" or "rmsnorm"."""
    if norm == "layernorm":
        return F.layer_norm(x, x.shape[-1:], weight, bias, epsilon)
    return F.rms_norm(x, x.shape[-1:], weight, epsilon) if norm == "rmsnorm" else x


def first_of_largest(logits: Tensor) -> Tensor:
    """The first of the largest along the last dimension, or -1 if one is a NaN.

    >>> first_of_largest(torch.tensor([[1.0, 3.0, 3.0], [5.0, 2.0, torch.nan]]))
    tensor([ 1, -1])
    """
    most, found = logits.max(-1)
    return found.masked_fill(most.isnan(), -1)


def _rows_at_a_time(hidden: Tensor, weight: Tensor) -> int:
    return max(FEWEST_ROWS, BYTES // (weight.shape[0] * hidden.element_size()))
