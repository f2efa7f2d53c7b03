"""Sequences of several lengths in one batch (B, T, ...): reversed, cut off, and read at their last steps."""

from __future__ import annotations

import torch
from torch import Tensor


def at_step(values: Tensor, last: Tensor | None) -> Tensor:
    """values (B, T, D) at one step of each row: (B, D). last: (B,), the step's number, or None for the last of all."""
    if last is None:
        return values[:, -1]
    return values.gather(1, last.view(-1, 1, 1).expand(-1, 1, values.shape[2])).squeeze(1)


def inside(lengths: Tensor, length: int) -> Tensor:
    """(B, T) bool: which steps belong to their sequence."""
    return torch.arange(length, device=lengths.device) < lengths.unsqueeze(1)


def reverse(values: Tensor, lengths: Tensor | None) -> Tensor:
    """values (B, T) or (B, T, D) with each sequence reversed by its own length; what follows it stays where it is.

    >>> reverse(torch.tensor([[1, 2, 3, 0], [1, 2, 3, 4]]), torch.tensor([3, 4])).tolist()
    [[3, 2, 1, 0], [4, 3, 2, 1]]
    """
    if lengths is None:
        return values.flip(1)
    t = torch.arange(values.shape[1], device=values.device)
    order = torch.where(t < lengths.unsqueeze(1), lengths.unsqueeze(1) - 1 - t, t)
    if values.dim() == 3:
        order = order.unsqueeze(-1).expand(-1, -1, values.shape[2])
    return values.gather(1, order)


def reverse_reset(reset: Tensor, lengths: Tensor | None) -> Tensor:
    """Where sequences begin, read backwards: reset (B, T) is true at the first step of each packed sequence.

    >>> reverse_reset(torch.tensor([[True, False, True, False, False]]), None).int().tolist()  # of 2 and 3 steps
    [[0, 0, 0, 1, 0]]
    """
    if lengths is not None:
        reset = reset & inside(lengths, reset.shape[1])
    after = torch.cat((reset[:, 1:], torch.zeros_like(reset[:, :1])), 1)
    return reverse(after, lengths)
