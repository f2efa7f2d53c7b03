"""How long to train, when to stop, how many seeds, and the history of a training. Defaults: the paper's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from latchwork.evaluation.accuracy import Accuracy


@dataclass(frozen=True, kw_only=True)
class TrainingProtocol:
    """One training, and how often it is repeated.

    sequences, validation_sequences: of the task's splits; None is all of them.
    window, min_delta, patience: early stopping looks at the mean validation loss of the last `window` epochs; it stops
    after `patience` epochs without a mean lower than the lowest by more than min_delta.
    perfect: stop after this many epochs in a row with every validation answer right; None never.
    seeds: repeat for at least min_seeds and at most max_seeds, until with this confidence the next would not be better
    by more than `margin` in validation accuracy. hours: the limit for all seeds and batch sizes together.
    """

    sequences: int | None = None
    validation_sequences: int | None = None
    epochs: int = 30
    window: int = 3
    min_delta: float = 1e-5
    patience: int = 5
    perfect: int | None = None
    min_seeds: int = 3
    max_seeds: int = 10
    confidence: float = 0.99
    margin: float = 0.001
    hours: float = 4.0

    def why_stop(self, epochs: Sequence[Mapping[str, float]]) -> str:
        """The reason to stop after these epochs, or an empty string."""
        last = epochs[-self.perfect :] if self.perfect else []
        if last and len(last) == self.perfect and all(each["validation_accuracy"] == 1 for each in last):
            return "perfect"
        if len(epochs) >= self.epochs:
            return "all epochs"
        losses = [each["validation_loss"] for each in epochs]
        means = [sum(losses[i : i + self.window]) / self.window for i in range(len(losses) - self.window + 1)]
        lowest, waited = float("inf"), 0
        for mean in means:
            lowest, waited = (mean, 0) if mean < lowest - self.min_delta else (lowest, waited + 1)
        return "no improvement" if waited >= self.patience else ""


@dataclass(frozen=True, kw_only=True)
class EvaluationProtocol:
    """Long sequences, new ones until the interval is narrow.

    length: steps of each sequence; None is the task's. sequences: in each data set; None is the split's. One data set
    follows another, each with a seed of its own, until the bootstrap interval of the mean has the margin that
    `evaluation.statistics.wanted_margin` asks for, at least min_seeds and at most max_seeds of them.
    shorter: further pairs (steps, sequences) to evaluate if the long sequences ask for answers at their end only.
    rows: sequences run at once. chunk: steps run at once. hours: the limit for one model.
    """

    length: int | None = None
    sequences: int | None = None
    shorter: tuple[tuple[int, int], ...] = ()
    min_seeds: int = 3
    max_seeds: int = 10
    confidence: float = 0.99
    resamples: int = 10_000
    rows: int = 64
    chunk: int = 1024
    hours: float = 20.0


# On the way to 2^20 steps, with fewer sequences the longer they are.
ON_THE_WAY = ((1 << 12, 128), (1 << 14, 128), (1 << 16, 64), (1 << 18, 16))
ScaleName = Literal["smoke", "laptop", "paper"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A budget. It changes how much is computed, never what is learnt or how it is judged."""

    name: ScaleName
    training: TrainingProtocol
    evaluation: EvaluationProtocol


SCALES: dict[str, Scale] = {
    scale.name: scale
    for scale in (
        Scale(
            name="smoke",
            training=TrainingProtocol(
                sequences=256, validation_sequences=32, epochs=2, perfect=1, min_seeds=1, max_seeds=1, hours=0.05
            ),
            evaluation=EvaluationProtocol(length=4096, sequences=4, min_seeds=2, max_seeds=2, rows=4),
        ),
        Scale(
            name="laptop",
            training=TrainingProtocol(perfect=2, min_seeds=1, max_seeds=3, hours=1.0),
            evaluation=EvaluationProtocol(sequences=8, shorter=ON_THE_WAY, min_seeds=2, max_seeds=4, rows=8, hours=1.0),
        ),
        Scale(name="paper", training=TrainingProtocol(), evaluation=EvaluationProtocol(shorter=ON_THE_WAY)),
    )
}


@dataclass
class History:
    """The course of a training: why it stopped; loss, validation and seconds of each epoch; its ModeGap."""

    epoch: int = 0  # epochs done
    loss: float = 0.0  # of the current epoch, summed over its answers
    asked: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_epoch: int = -1
    best_accuracy: float = -1.0
    epochs: list[dict[str, float]] = field(default_factory=list)
    mode_gap: dict[str, float] | None = None
    hours: float | None = None  # the limit
    stopped: str = ""

    def add(self, loss: float, asked: int, tokens: int) -> None:
        """Count a step of the current epoch. tokens: of all steps so far."""
        self.loss, self.asked, self.tokens = self.loss + loss * asked, self.asked + asked, tokens

    def end_epoch(self, validation: Accuracy, learning_rate: float, seconds: float) -> bool:
        """Close the current epoch; returns whether it is the best so far. seconds: of the whole training."""
        self.epochs.append(
            {
                "loss": self.loss / max(1, self.asked),
                "validation_loss": validation.loss,
                "validation_accuracy": validation.accuracy,
                "learning_rate": learning_rate,
                "seconds": seconds - self.seconds,
            }
        )
        best = validation.accuracy > self.best_accuracy
        if best:
            self.best_epoch, self.best_accuracy = self.epoch, validation.accuracy
        self.epoch, self.loss, self.asked, self.seconds = self.epoch + 1, 0.0, 0, seconds
        return best
