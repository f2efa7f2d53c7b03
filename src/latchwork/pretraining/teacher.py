"""A teacher: the running mean of the weights predicts too, and the model learns from what it predicts.

The token that follows is one draw from what might follow, and a step's gradient is noisy for it. While the rate is
high, the mean of the weights of the last hundred steps or so is a better model than any of them: it knows what else
might have followed. The model learns from both. There is no second training: the teacher only follows, and as the rate
falls to 0 the two become one.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from latchwork.pretraining.config import TeacherConfig


class Teacher:
    """A copy of the model that follows it."""

    def __init__(self, model: nn.Module, config: TeacherConfig) -> None:
        self.config = config
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def follow(self, model: nn.Module, step: int) -> None:
        """Take the weights before a step (counted from 0) into the mean. At first it is over fewer steps."""
        part = 1 - min(self.config.decay, (1 + step) / (10 + step))
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, part)

    @torch.no_grad()
    def predict(self, tokens: Tensor) -> Tensor:
        """The probabilities of what follows each token, (B, T, V)."""
        logits: Tensor = self.model(tokens)[0]
        return logits.float().softmax(-1)
