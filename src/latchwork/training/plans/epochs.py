"""The paper's protocol: epochs over a fixed data set, validation after each, the best weights kept, early stopping."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.evaluation.accuracy import measure, mode_gap
from latchwork.seeds import generator
from latchwork.tasks.task import IGNORE, Batch, Task
from latchwork.training.distributed import Processes, whole_tensors
from latchwork.training.engine import DivergedError, Training
from latchwork.training.network import ModelWithLoss
from latchwork.training.plan import Outcome, Plan, Step, deal
from latchwork.training.protocol import History, TrainingProtocol
from latchwork.training.trainer import Trainer

TOGETHER = 16  # sequences run at once; a batch is the sum of such groups
COMPARED = 64  # training sequences on which training mode and evaluation mode are compared


class Epochs(Plan):
    """Train on a task's training split as the paper does. seconds_left: what is left of the time for all seeds."""

    name = "epochs"

    def __init__(
        self,
        task: Task,
        trainer: Trainer,
        batch_size: int,
        protocol: TrainingProtocol,
        seed: int,
        seconds_left: float = float("inf"),
    ) -> None:
        self.trainer, self.batch_size, self.protocol, self.seed = trainer, batch_size, protocol, seed
        self.clip, self.seconds_left = trainer.clip, seconds_left
        self.data = task.sample("train", seed, protocol.sequences)
        self.validation = task.sample("validation", seed, protocol.validation_sequences)
        self.ends, self.validation_ends = ends_of(self.data), ends_of(self.validation)
        self.per_epoch = -(-len(self.data.tokens) // batch_size)
        self.history, self.best = History(hours=protocol.hours), dict[str, Tensor]()
        self.order = (-1, torch.empty(0))  # of which epoch, and its rows
        self.at_end = False  # whether the last batch of an epoch is done

    def network(self, model: nn.Module) -> nn.Module:
        return ModelWithLoss(model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.trainer.make_optimizer(model.parameters())

    def rate(self, step: int) -> float:
        return self.trainer.rate(step, self.per_epoch, self.protocol.epochs)

    def batches(self, step: int, rank: int, world: int) -> list[tuple[Batch, float]]:
        """The groups of one batch; weighted by their answers, they sum to the mean loss of the batch."""
        epoch, number = divmod(step, self.per_epoch)
        if self.order[0] != epoch:
            draw = generator(self.seed, "order", epoch).permutation(len(self.data.tokens))
            self.order = (epoch, torch.from_numpy(draw))
        rows = self.order[1][number * self.batch_size : (number + 1) * self.batch_size]
        return deal(groups(self.data, self.ends, rows), rank, world)

    def loss(self, network: nn.Module, batch: Batch) -> Outcome:
        device = next(network.parameters()).device
        loss = network(batch.tokens.to(device), batch.targets.to(device))[0]
        return Outcome(loss, tokens=int(ends_of(batch).sum()), asked=int((batch.targets != IGNORE).sum()))

    def observe(self, training: Training, step: Step) -> None:
        place = training.place
        self.history.add(step.loss, step.asked, place.tokens)
        if place.seconds + place.evaluation_seconds > min(self.protocol.hours * 3600, self.seconds_left):
            self.stopped = "time limit"
        self.at_end = place.step % self.per_epoch == 0

    def due(self) -> bool:
        return self.at_end or bool(self.stopped)

    def evaluate(self, training: Training) -> None:
        start, history, place = time.monotonic(), self.history, training.place
        training.pause()
        training.show("validating")
        model = training.whole_model()
        found = measure(model, self.validation, self.validation_ends)
        spent = place.seconds + place.evaluation_seconds + time.monotonic() - start
        if history.end_epoch(found, self.rate(max(0, place.step - 1)), spent):
            self.best = {name: each.clone() for name, each in whole_tensors(training.model).items()}
        training.log(history.epochs[-1])
        self.stopped = history.stopped = self.stopped or self.protocol.why_stop(history.epochs)
        if self.stopped:
            gap = mode_gap(model, Batch(*(each[:COMPARED] for each in self.data)), self.ends[:COMPARED])
            history.mode_gap = None if gap is None else gap._asdict()

    def diverged(self, training: Training, error: DivergedError) -> None:
        self.stopped = "diverged"

    def state(self) -> dict[str, Any]:
        return asdict(self.history)

    def restore(self, state: Mapping[str, Any]) -> None:
        self.history = History(**state)

    def tensors(self, here: Processes) -> dict[str, Tensor]:
        return self.best

    def restore_tensors(self, tensors: Mapping[str, Tensor], here: Processes) -> None:
        self.best = dict(tensors)

    def progress(self, step: int) -> tuple[float, float | None, str]:
        epochs = self.history.epochs
        accuracy = f" accuracy {100 * epochs[-1]['validation_accuracy']:.2f}%" if epochs else ""
        text = f"epoch {self.history.epoch + 1} of {self.protocol.epochs}{accuracy}"
        return step, self.per_epoch * self.protocol.epochs, text


def groups(data: Batch, ends: Tensor, rows: Tensor) -> list[tuple[Batch, float]]:
    """Rows of like length together, cut at their ends, each group with its share of the answers."""
    asked, found = max(1, int((data.targets[rows] != IGNORE).sum())), []
    for group in rows[torch.argsort(ends[rows], stable=True)].split(TOGETHER):  # type: ignore[no-untyped-call]
        longest = max(1, int(ends[group].max()))
        piece = Batch(data.tokens[group, :longest], data.targets[group, :longest])
        found.append((piece, int((piece.targets != IGNORE).sum()) / asked))
    return [each for each in found if each[1]] or found[:1]  # a group without answers has no gradient


def ends_of(batch: Batch) -> Tensor:
    """For each row the number of steps up to its last answer."""
    steps = torch.arange(1, batch.targets.shape[1] + 1)
    return ((batch.targets != IGNORE) * steps).amax(1)
