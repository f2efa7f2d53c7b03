"""Learning by length: short words first, longer ones whenever enough answers are right."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.modules import set_temperature
from latchwork.tasks.last_step import LastStep
from latchwork.tasks.task import IGNORE, Batch, Split, Task
from latchwork.training.curriculum import WORDS, Learning, LengthCurriculum
from latchwork.training.engine import DivergedError, Training
from latchwork.training.plan import Outcome, Plan, Step


class ByLength(Plan):
    """Each step draws new words of the length reached; at a smoothed accuracy above the threshold the length grows.

    Where only the last answer counts (LastStep), the length of each word is drawn from 1 to the length reached: at one
    length alone a network can count steps instead.
    """

    name = "by_length"

    def __init__(self, task: Task, curriculum: LengthCurriculum, seed: int = 0) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"seed must be an integer of at least 0; got {seed!r}")
        self.task, self.curriculum, self.seed = task, curriculum, seed
        self.learning_rate, self.clip = curriculum.learning_rate, curriculum.clip
        self.length, self.right, self.found = float(curriculum.shortest), 0, Learning()

    def start(self, training: Training) -> None:
        if not self.found.history:
            self._reach(training.model, self.length)
        set_temperature(training.model, self.curriculum.temperature(self.length))
        if self.curriculum.steps == 0:
            self.stopped = self.found.stopped = "steps"

    def _reach(self, model: nn.Module, length: float) -> None:
        """Go on at a new length."""
        set_temperature(model, self.curriculum.temperature(length))
        found, self.length = self.found, length
        found.length, found.accuracy, found.learning_rate = int(length), 0.0, self.curriculum.rate(length)
        found.history.append({"length": found.length, "step": found.steps, "seconds": round(found.seconds, 2)})

    def rate(self, step: int) -> float:
        return self.found.learning_rate

    def batches(self, step: int, rank: int, world: int) -> list[tuple[Batch, float]]:
        tokens, targets = draw(self.task, self.seed, step + 1, self.curriculum, self.length)
        mine = slice(rank * len(tokens) // world, (rank + 1) * len(tokens) // world)
        asked = [int((each != IGNORE).sum()) for each in (targets, targets[mine])]
        if not asked[0]:
            shape = f"{tokens.shape[0]} words of {tokens.shape[1]} steps"
            raise ValueError(f"task must ask for an answer in {shape}; none is")
        return [(Batch(tokens[mine], targets[mine]), asked[1] / asked[0])]

    def loss(self, network: nn.Module, batch: Batch) -> Outcome:
        device = next(network.parameters()).device
        return answer_loss(network(batch.tokens.to(device))[0], batch.targets.to(device))

    def observe(self, training: Training, step: Step) -> None:
        found, plan = self.found, self.curriculum
        found.steps, found.loss = step.number + 1, step.loss
        found.tokens, found.seconds = training.place.tokens, training.place.seconds
        found.accuracy = plan.smoothing * found.accuracy + (1 - plan.smoothing) * step.accuracy
        self.right = self.right + 1 if self.length >= plan.longest and step.accuracy == 1 else 0
        if self.right >= plan.right:
            found.stopped = "learnt"
        elif found.accuracy > plan.threshold and self.length < plan.longest:
            self._reach(training.model, plan.longer(self.length))
        elif found.steps - found.history[-1]["step"] >= plan.patience:
            found.stopped = "stuck"
        if not found.stopped and (found.steps >= plan.steps or found.seconds >= plan.seconds):
            found.stopped = "steps" if found.steps >= plan.steps else "seconds"
        self.stopped = found.stopped

    def diverged(self, training: Training, error: DivergedError) -> None:
        self.found.steps, self.found.loss = error.step + 1, error.loss
        self.stopped = self.found.stopped = "diverged"

    def state(self) -> dict[str, Any]:
        return {"length": self.length, "right": self.right, "found": asdict(self.found)}

    def restore(self, state: Mapping[str, Any]) -> None:
        loss = state["found"]["loss"]
        self.found = Learning(**{**state["found"], "loss": float("nan") if loss is None else loss})
        self.length, self.right = state["length"], state["right"]

    def metrics(self) -> dict[str, float]:
        return {"length": self.found.length, "accuracy": self.found.accuracy}

    def progress(self, step: int) -> tuple[float, float | None, str]:
        text = f"length {self.found.length}  accuracy {self.found.accuracy:.3f}"
        return self.length, self.curriculum.longest, text + (f"  {self.stopped}" if self.stopped else "")


def draw(task: Task, seed: int, step: int, curriculum: LengthCurriculum, length: float) -> tuple[Tensor, Tensor]:
    """Words that no other step has, with their answers."""
    number, rows, steps = seed * WORDS + step, curriculum.words(length), int(length)
    if not isinstance(task, LastStep):
        return task.sample("train", number, rows, steps)
    varied = copy(task)
    varied.splits = {"train": Split(sequences=rows, shortest=1, longest=steps)}
    return varied.sample("train", number)


def answer_loss(logits: Tensor, targets: Tensor) -> Outcome:
    """Mean cross-entropy of the answers asked for, and how many were right."""
    kept = targets != IGNORE
    chosen, answers = logits[kept], targets[kept]
    loss = F.cross_entropy(chosen, answers) if len(answers) else chosen.sum()
    right = int((chosen.argmax(-1) == answers).sum())
    return Outcome(loss, tokens=targets.numel(), asked=len(answers), right=right)
