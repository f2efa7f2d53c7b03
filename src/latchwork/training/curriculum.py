"""The curriculum of learning by length, and its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

WORDS = 1_000_003  # numbers of batches that belong to one seed: more than any training takes


@dataclass(frozen=True, kw_only=True)
class LengthCurriculum:
    """How `learn_by_length` trains; the defaults are those that learn S5 with all its 120 tokens.

    learning_rate: of Adam, for all parameters, at the first length. At another length it is multiplied by
    (shortest / length)^decay, but never by less than `floor`. The temperature of the surrogate gradient of units that
    move whole levels rises as (length / shortest)^decay: at a low one, a wrong choice is too certain to change.
    shortest, longest: the first and the last length. growth: the next length is this multiple of the current one, and
    at least one more. threshold: the smoothed accuracy at which the length grows. smoothing: of the accuracy, which
    starts from 0 at each length. tokens: of a batch, at any length. rows: the fewest words of a batch. clip: the
    largest gradient norm. right: batches in a row without a mistake at the last length, after which the task is learnt.
    steps, seconds: when to give up. patience: the most steps at one length; beyond it the training is stuck.
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
        """The temperature of the surrogate gradient at a length.

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
    """The result of a training, so far.

    stopped: "learnt", "steps", "seconds", "stuck" or "diverged"; empty while it runs. accuracy, loss: of the last
    batch, the accuracy smoothed. length: of the last words. tokens: the number read. history: for each length, the
    step and the seconds at which it started.
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
