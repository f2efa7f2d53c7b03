"""A plan says what a training sees, how fast it learns and when it is over. The engine does everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from latchwork.training.distributed import Processes
    from latchwork.training.engine import DivergedError, Training

Piece = TypeVar("Piece")


@dataclass(frozen=True)
class Outcome:
    """What one batch came to: its mean loss, its tokens, how many answers were asked for, and how many were right."""

    loss: Tensor
    tokens: int = 0
    asked: int = 0
    right: int = 0


@dataclass(frozen=True)
class Step:
    """What one step came to, over all its batches and all processes. number: counted from 0."""

    number: int
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    asked: int
    right: int

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return self.right / max(1, self.asked)


class Plan(ABC):
    """The base class of plans.

    A plan must define `batches` and `loss`, and set `stopped` when it is over. Everything else has a default.

    name: shown and recorded. seed: the source of all randomness. clip: the largest gradient norm, or None. log_every:
    steps between two lines of metrics. save_every, save_seconds: steps or seconds between two checkpoints; None never.
    keep: checkpoints kept. compile: whether the network is compiled. flops: operations per token; peak: operations per
    second that one process could do, or None. stopped: why the training is over; empty while it is not.
    """

    name: str = "plan"
    seed: int = 0
    learning_rate: float = 1e-3
    clip: float | None = 1.0
    log_every: int = 50
    save_every: int | None = None
    save_seconds: float | None = 60.0
    keep: int = 2
    compile: bool = False
    flops: float = 0.0
    peak: float | None = None
    stopped: str = ""

    @abstractmethod
    def batches(self, step: int, rank: int, world: int) -> Sequence[tuple[Any, float]]:
        """The batches of this step that process `rank` of `world` runs, one after another, each with its weight.

        They must be a function of seed, step and the plan's state alone, so that a resumed run sees them again. All
        processes together must see the same data whatever `world` is, as many batches each, weights that sum to 1:
        `deal` does both. The gradient of a step is that of the weighted sum of losses.
        """

    @abstractmethod
    def loss(self, network: nn.Module, batch: Any) -> Outcome:
        """Run the network on a batch. network: what `network` made, as the processes share it."""

    def network(self, model: nn.Module) -> nn.Module:
        """The module that `loss` calls; it must call the model. Compilation, DDP and FSDP wrap this module."""
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer."""
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate)

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return self.learning_rate

    def set_optimizer(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        """Set what the optimizer needs for a step; returns the learning rate."""
        rate = self.rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        return rate

    def start(self, training: Training) -> None:
        """Called once, before the first step or after a resume."""

    def observe(self, training: Training, step: Step) -> None:
        """Called after each step: update the plan's state. It must be quick."""

    def due(self) -> bool:
        """Whether `evaluate` is to be called after this step."""
        return False

    def evaluate(self, training: Training) -> None:
        """Validate, certify or the like, in evaluation mode. It may take long.

        Call `training.pause()` now and then: a signal then ends it, and after a resume it is called again. So change
        the plan's state only at its end.
        """

    def diverged(self, training: Training, error: DivergedError) -> None:
        """The loss or the gradient is not finite; the weights are those before the step. Raise, or set `stopped`."""
        raise error

    def state(self) -> dict[str, Any]:
        """All that the plan has to remember, as JSON takes it."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""

    def tensors(self, here: Processes) -> dict[str, Tensor]:
        """Tensors that the plan has to remember, whole. All processes call it."""
        return {}

    def restore_tensors(self, tensors: Mapping[str, Tensor], here: Processes) -> None:
        """The inverse of `tensors`."""

    def metrics(self) -> dict[str, float]:
        """What is logged besides the loss."""
        return {}

    def progress(self, step: int) -> tuple[float, float | None, str]:
        """How much is done, of how much (None: unknown), and a few words."""
        return step, None, ""


def deal(pieces: Iterable[tuple[Piece, float]], rank: int, world: int) -> list[tuple[Piece, float]]:
    """Every world-th piece, from rank on. Where processes would have unequal numbers, the last piece comes again.

    It then has weight 0: no process waits for another in vain, and the sum is the same.
    >>> deal([("a", 0.5), ("b", 0.3), ("c", 0.2)], 1, 2)
    [('b', 0.3), ('c', 0.0)]
    """
    every = list(pieces)
    while len(every) % world:
        every.append((every[-1][0], 0.0))
    return every[rank::world]
