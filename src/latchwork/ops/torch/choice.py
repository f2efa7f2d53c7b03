"""A hard choice for each row of logits in plain torch: the definition, which autograd differentiates."""

from __future__ import annotations

import torch
from torch import Tensor


def unfit(logits: Tensor) -> None:
    """Nothing: this backend takes every tensor."""


def plain_choice(logits: Tensor, own: Tensor | None, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """As `choose_rows`, which checks the arguments."""
    whole = logits if own is None else torch.cat([logits, own.unsqueeze(-1)], -1)
    wide = whole.to(torch.promote_types(whole.dtype, torch.float32))
    return (wide / temperature).softmax(-1).to(whole.dtype), whole.detach().argmax(-1)
