"""Padding in a batch of tokens: skipped exactly, wherever it stands."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from latchwork.modules.state import State


class Alignment(NamedTuple):
    """A padded batch with the real tokens of each row moved to its right end, in order.

    order: (B, T), which step comes where. padding: (B, T), true left of the real tokens; reset: (B, T), true at the
    first of them. back: (B, T), where each step finds its output; a masked one has that of the last real one before.
    """

    order: Tensor
    padding: Tensor
    reset: Tensor
    back: Tensor

    def apply(self, inputs: Tensor) -> Tensor:
        """inputs (B, T) or (B, T, d) in the new order, zero where they are padding."""
        extra = [1] * (inputs.dim() - 2)
        moved = torch.take_along_dim(inputs, self.order.view(*self.order.shape, *extra), 1)
        return moved.masked_fill(self.padding.view(*self.padding.shape, *extra), 0)

    def undo(self, y: Tensor) -> Tensor:
        """y (B, T) or (B, T, d) in the old order."""
        return torch.take_along_dim(y, self.back.view(*self.back.shape, *[1] * (y.dim() - 2)), 1)

    def undo_state(self, state: State, initial: State) -> State:
        """The state of each row, which for a row without any real token is the initial one."""
        empty = self.padding.all(1, keepdim=True)
        return State(torch.where(empty, initial.conv, state.conv), torch.where(empty, initial.x, state.x))


def align(mask: Tensor) -> Alignment:
    """Of mask (B, T), true at the real tokens.

    >>> alignment = align(torch.tensor([[True, False, True, True, False]]))
    >>> alignment.order.tolist(), alignment.back.tolist(), alignment.reset.int().tolist()
    ([[1, 4, 0, 2, 3]], [[2, 2, 3, 4, 4]], [[0, 0, 1, 0, 0]])
    """
    begin = mask.shape[1] - mask.sum(1, keepdim=True)
    steps = torch.arange(mask.shape[1], device=mask.device)
    back = begin + mask.cumsum(1) - 1  # before the first real token: a step of padding, which saw nothing but padding
    return Alignment(mask.byte().argsort(dim=1, stable=True), steps < begin, steps == begin, back)


def read_mask(mask: Tensor | None, inputs: Tensor, state: State | None) -> Alignment | None:
    """How to skip the padding of inputs (B, T, ...), or None where there is none."""
    if mask is None:
        return None
    B, T = inputs.shape[:2]
    if mask.dim() != 2 or len(mask) != B or (mask.shape[1] != T if state is None else mask.shape[1] < T):
        longer = "" if state is None else ", or longer with what came before"
        raise ValueError(f"attention_mask must be (B, T) = {(B, T)}{longer}; got {tuple(mask.shape)}")
    mask = mask[:, mask.shape[1] - T :].to(inputs.device).bool()
    if mask.all():
        return None
    if state is not None:
        raise ValueError("attention_mask must be 1 at all new tokens where a state is given: skip padding before that")
    return align(mask)
