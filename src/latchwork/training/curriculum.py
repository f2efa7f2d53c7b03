"""Learn by length: short words first, longer ones whenever three of five answers are right."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.modules import set_temperature
from latchwork.tasks.last_step import LastStep
from latchwork.tasks.task import IGNORE, Split, Task

WORDS = 1_000_003  # numbers of batches that belong to one seed: more than any training takes


@dataclass(frozen=True, kw_only=True)
class LengthCurriculum:
    """How `learn_by_length` trains; the defaults are those that learn S5 with all its 120 tokens.

    learning_rate: of Adam, for all parameters, at the first length. At another it is times (shortest / length)^decay,
    but never less than `floor` times as much. In the same measure, (length / shortest)^decay, rises the temperature of
    the surrogate gradient of units that move whole levels: what was chosen wrongly at a low one is too sure to change.
    shortest, longest: the first length and the last. growth: the next length is so many times this one, and at least
    one more. threshold: the accuracy to go on at, smoothed by `smoothing` and begun again at 0 for each length. tokens:
    of a batch, whatever the length; rows: at least so many words. clip: the largest norm of the gradient. right:
    batches in a row at the last length without a wrong answer, after which it is learnt. steps, seconds: where to give
    up. patience: so many steps at one length, and it is stuck.
    """

    learning_rate: float = 5e-3
    decay: float = 0.5
    floor: float = 0.1
    shortest: int = 2
    longest: int = 40
    growth: float = 1.3
    threshold: float = 0.6
    smoothing: float = 0.8
    tokens: int = 1024
    rows: int = 8
    clip: float = 1.0
    right: int = 10
    steps: int = 10_000
    seconds: float = float("inf")
    patience: float = float("inf")

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("shortest", "tokens", "rows", "right"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("learning_rate", "clip", "seconds", "patience"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}")
        for name in ("floor", "threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1; got {getattr(self, name)}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and less than 1; got {self.smoothing}")
        if self.longest < self.shortest:
            raise ValueError(f"longest must be at least shortest = {self.shortest}; got {self.longest}")
        if not self.growth >= 1:
            raise ValueError(f"growth must be at least 1; got {self.growth}")
        if not self.decay >= 0:
            raise ValueError(f"decay must be at least 0; got {self.decay}")
        if not 0 <= self.steps < WORDS:
            raise ValueError(f"steps must be at least 0 and less than {WORDS}; got {self.steps}")

    def rate(self, length: float) -> float:
        """The learning rate at a length.

        >>> round(LengthCurriculum().rate(8), 6)
        0.0025
        """
        return self.learning_rate * max(self.floor, float((self.shortest / length) ** self.decay))

    def temperature(self, length: float) -> float:
        """That of the surrogate gradient at a length.

        >>> LengthCurriculum().temperature(8)
        2.0
        """
        return float((length / self.shortest) ** self.decay)

    def longer(self, length: float) -> float:
        """The length after this one; a fraction is kept, though words are cut at the whole number.

        >>> LengthCurriculum().longer(2), LengthCurriculum().longer(10), LengthCurriculum().longer(39)
        (3, 13.0, 40)
        """
        return min(self.longest, max(length + 1, self.growth * length))

    def words(self, length: float) -> int:
        """How many words of that length a batch has."""
        return max(self.rows, self.tokens // int(length))


@dataclass
class Learning:
    """What a training came to, as far as it went.

    stopped: "learnt", or "steps", "seconds", "stuck", "diverged"; empty while it goes on. accuracy, loss: of the last
    batch, the accuracy smoothed. length: of the last words. tokens: all that were read. history: for each length, the
    step before which it began, and the seconds until then.
    """

    stopped: str = ""
    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    length: int = 0
    accuracy: float = 0.0
    loss: float = float("nan")
    learning_rate: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)

    @property
    def learnt(self) -> bool:
        """Whether every answer was right in the last batches at the full length."""
        return self.stopped == "learnt"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        loss = self.loss if self.loss == self.loss else None
        return {"learnt": self.learnt, **asdict(self), "loss": loss, "seconds": round(self.seconds, 2)}


Watch = Callable[[Learning], None]


def learn_by_length(
    model: nn.Module,
    task: Task,
    curriculum: LengthCurriculum = LengthCurriculum(),
    *,
    seed: int = 0,
    watch: Watch | None = None,
) -> Learning:
    """Train a model in place, from short words to long ones, until it is always right or a limit is reached.

    model: tokens (B, T) and a state to logits and a state. task: whether every answer counts or, as in LastStep, only
    the last; then the length of each word is drawn evenly from 1 to the one that the curriculum has reached, for at one
    length alone what is not counted can be counted instead. seed: of the words; each step draws new ones.
    watch: called after each step, with what will be returned.
    """
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0; got {seed!r}")
    training, began = model.training, time.monotonic()
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=curriculum.learning_rate)
    length, right, found = float(curriculum.shortest), 0, Learning()
    _begin(model, found, curriculum, length)
    while not found.stopped:
        if found.steps >= curriculum.steps or found.seconds >= curriculum.seconds:
            found.stopped = "steps" if found.steps >= curriculum.steps else "seconds"
            break
        found.steps += 1
        tokens, targets = _draw(task, seed, found.steps, curriculum, length)
        for group in optimizer.param_groups:
            group["lr"] = found.learning_rate
        accuracy, found.loss = _step(model, optimizer, curriculum.clip, tokens, targets)
        found.accuracy = curriculum.smoothing * found.accuracy + (1 - curriculum.smoothing) * accuracy
        found.tokens += tokens.numel()
        found.seconds = time.monotonic() - began
        right = right + 1 if length >= curriculum.longest and accuracy == 1 else 0
        if found.loss != found.loss:
            found.stopped = "diverged"
        elif right >= curriculum.right:
            found.stopped = "learnt"
        elif found.accuracy > curriculum.threshold and length < curriculum.longest:
            length = curriculum.longer(length)
            _begin(model, found, curriculum, length)
        elif found.steps - found.history[-1]["step"] >= curriculum.patience:
            found.stopped = "stuck"
        if watch is not None:
            watch(found)
    set_temperature(model, 1.0)
    model.train(training)
    return found


def _begin(model: nn.Module, found: Learning, curriculum: LengthCurriculum, length: float) -> None:
    """Go on at a new length."""
    set_temperature(model, curriculum.temperature(length))
    found.length, found.accuracy, found.learning_rate = int(length), 0.0, curriculum.rate(length)
    found.history.append({"length": found.length, "step": found.steps, "seconds": round(found.seconds, 2)})


def _draw(task: Task, seed: int, step: int, curriculum: LengthCurriculum, length: float) -> tuple[Tensor, Tensor]:
    """Words that no other step has, with their answers."""
    number, rows, steps = seed * WORDS + step, curriculum.words(length), int(length)
    if not isinstance(task, LastStep):
        return task.sample("train", number, rows, steps)
    varied = copy(task)
    varied.splits = {"train": Split(sequences=rows, shortest=1, longest=steps)}
    return varied.sample("train", number)


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, clip: float, tokens: Tensor, targets: Tensor
) -> tuple[float, float]:
    """One step of the optimiser; the share of right answers, and the loss."""
    device = next(model.parameters()).device
    tokens, targets = tokens.to(device), targets.to(device)
    kept = targets != IGNORE
    if not bool(kept.any()):
        raise ValueError(f"task must ask for an answer in {tokens.shape[0]} words of {tokens.shape[1]} steps; none is")
    logits = model(tokens)[0][kept]
    loss = F.cross_entropy(logits, targets[kept])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return float((logits.argmax(-1) == targets[kept]).double().mean()), float(loss.detach())
