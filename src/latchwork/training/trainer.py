"""Trainers: the optimiser, its learning rate over time, and the batch sizes tried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import cos, pi
from typing import Literal

import torch
from torch import nn


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """How a model's weights are moved.

    schedule: "step" halves the rate every 5 epochs; "cosine" warms up over the first tenth of all steps and falls to 0;
    "constant". clip: the largest norm of the gradient, or None.
    """

    name: str
    optimizer: Literal["adam", "adamw"] = "adam"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float | None = None
    schedule: Literal["step", "cosine", "constant"] = "constant"
    batch_sizes: tuple[int, ...] = (64,)

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Adam, with its decay added to the gradient, or AdamW, with its decay apart."""
        make = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        return make(parameters, lr=self.learning_rate, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay)

    def rate(self, step: int, steps_per_epoch: int, epochs: int) -> float:
        """The learning rate of a step, counted from 0 over all epochs. It has no memory, so nothing is to be saved."""
        if self.schedule == "step":
            return self.learning_rate * 0.5 ** (step // (5 * steps_per_epoch))
        if self.schedule == "constant":
            return self.learning_rate
        total = steps_per_epoch * epochs
        warm = max(1, total // 10)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        return self.learning_rate * 0.5 * (1 + cos(pi * min(1.0, (step - warm) / max(1, total - warm))))


_MINMAX = {"weight_decay": 1e-4, "schedule": "step"}
_XLSTM = {
    "optimizer": "adamw",
    "betas": (0.9, 0.99),
    "eps": 1e-5,
    "weight_decay": 0.1,
    "clip": 1.0,
    "schedule": "cosine",
}
_MAMBA = {"clip": 1.0, "schedule": "constant"}

TRAINERS = {
    trainer.name: trainer
    for trainer in (
        Trainer(name="minmax", **_MINMAX),  # type: ignore[arg-type]
        Trainer(name="minmax_bs8", batch_sizes=(8,), **_MINMAX),  # type: ignore[arg-type]
        Trainer(name="xlstm", batch_sizes=(64, 128), **_XLSTM),  # type: ignore[arg-type]
        Trainer(name="xlstm_bs8", batch_sizes=(8,), **_XLSTM),  # type: ignore[arg-type]
        Trainer(name="mamba", **_MAMBA),  # type: ignore[arg-type]
        Trainer(name="mamba_bs8", batch_sizes=(8,), **_MAMBA),  # type: ignore[arg-type]
    )
}
