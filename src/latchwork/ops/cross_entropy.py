"""The loss of a language model without its logits: head and cross-entropy, a few rows at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

BYTES = 4 << 20  # of logits at a time: they stay in the cache from the product to the gradient
FEWEST_ROWS = 256  # at a time: fewer make the product for the weight's gradient inefficient


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """Mean cross-entropy of the logits hidden weight' with targets, leaving out those equal to ignore_index.

    hidden: (N, d), weight: (V, d), targets: (N,). Equal to `F.cross_entropy(F.linear(hidden, weight), targets)`, which
    is its definition and what a compiler is given; here the gradient is made with the loss, and of the logits (N, V)
    only as many rows exist at a time as fit a cache.
    """
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(hidden.device.type):
        return F.cross_entropy(F.linear(hidden, weight), targets, ignore_index=ignore_index)
    result: Tensor = _Loss.apply(hidden, weight, targets, ignore_index)  # type: ignore[no-untyped-call]
    return result


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
        rows = max(FEWEST_ROWS, BYTES // (weight.shape[0] * hidden.element_size()))
        kept = targets != ignore_index
        count = kept.sum()
        wanted = torch.where(kept, targets, 0)
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        total = hidden.new_zeros(())
        for start in range(0, hidden.shape[0], rows):
            piece = slice(start, start + rows)
            logits = hidden[piece] @ weight.t()
            best = logits.amax(-1, keepdim=True)
            right = logits.gather(1, wanted[piece, None])
            sums = logits.sub_(best).exp_().sum(-1, keepdim=True)
            total += torch.where(kept[piece], (sums.log() + best - right).squeeze(1), 0).sum()
            if grad_hidden is None and grad_weight is None:
                continue
            share = kept[piece, None] / count
            gradient = logits.mul_(share / sums).scatter_add_(1, wanted[piece, None], -share)
            if grad_hidden is not None:
                torch.mm(gradient, weight, out=grad_hidden[piece])
            if grad_weight is not None:
                grad_weight.addmm_(gradient.t(), hidden[piece])
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total / count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        grad_hidden, grad_weight = (None if each is None else each * grad for each in ctx.saved_tensors)
        return grad_hidden, grad_weight, None, None
