"""A pretraining run as data: model, optimiser, schedule, batches, and what is written when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from latchwork.baselines.registry import ModelConfig
from latchwork.config_reader import read_values

Value = TypeVar("Value", int, float)


def at(pieces: tuple[tuple[int, Value], ...], step: int) -> Value:
    """The value at a step of ((0, a), (k, b), ...): a before step k, b from it on.

    >>> [at(((0, 32), (36_000, 64)), step) for step in (0, 35_999, 36_000)]
    [32, 32, 64]
    """
    return next(value for start, value in reversed(pieces) if start <= step)


def _check_pieces(name: str, pieces: tuple[tuple[int, Any], ...], lowest: float) -> None:
    starts = [start for start, _ in pieces]
    if not starts or starts[0] != 0 or starts != sorted(set(starts)):
        raise ValueError(f"{name} must be pairs (from step, value) that begin with step 0 and rise; got {pieces}")
    if any(not value >= lowest for _, value in pieces):
        raise ValueError(f"{name} must have values of at least {lowest}; got {pieces}")


def _at_least(lowest: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < lowest:
            raise ValueError(f"{name} must be at least {lowest}; got {value}")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """name: "adamw", or "muon" for the matrices between embedding and head and AdamW for all else.

    matrix_rate: the factor of the learning rate for Muon's matrices. momentum: Muon's. weight_decay: by step. decay:
    "matrices" leaves biases, norms and other vectors alone. clip: the largest norm of the gradient, or None.
    """

    learning_rate: float
    name: Literal["adamw", "muon"] = "adamw"
    momentum: float = 0.95
    matrix_rate: float = 1.0
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: tuple[tuple[int, float], ...] = ((0, 0.1),)
    decay: Literal["matrices", "all"] = "matrices"
    clip: float | None = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        _check_pieces("weight_decay", self.weight_decay, 0)
        if not self.learning_rate > 0 or not self.eps > 0 or (self.clip is not None and not self.clip > 0):
            raise ValueError(f"learning_rate, eps and clip must be positive; got {self}")
        if not all(0 <= beta < 1 for beta in (*self.betas, self.momentum)):
            raise ValueError(f"betas and momentum must be at least 0 and less than 1; got {self}")
        if self.name not in ("adamw", "muon") or not self.matrix_rate > 0:
            raise ValueError(f"name must be 'adamw' or 'muon', and matrix_rate positive; got {self}")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate over time, as a part of the optimiser's.

    warmup: the part of all steps in which it rises from 0. Then it falls, by its shape, to the part `final`. steps: at
    which it gets there; None is the run's end. scale: a factor by step, for adjustments by hand.
    """

    shape: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = 0.01
    final: float = 0.01
    steps: int | None = None
    scale: tuple[tuple[int, float], ...] = ((0, 1.0),)

    def __post_init__(self) -> None:
        """Check every field."""
        _at_least(1, steps=self.steps)
        _check_pieces("scale", self.scale, 0)
        if self.shape not in ("linear", "cosine", "constant"):
            raise ValueError(f"shape must be 'linear', 'cosine' or 'constant'; got {self.shape!r}")
        if not (0 <= self.warmup <= 1 and 0 <= self.final <= 1):
            raise ValueError(f"warmup and final must be between 0 and 1; got {self.warmup} and {self.final}")


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """micro: sequences that a process runs at once. context: tokens of each. accumulation: by step; an optimiser step
    sees micro x accumulation sequences, shared among all processes. order: "random" draws the start of each sequence;
    "epochs" reads all of the text once before any of it again.
    """

    micro: int
    context: int
    accumulation: tuple[tuple[int, int], ...] = ((0, 1),)
    order: Literal["random", "epochs"] = "random"

    def __post_init__(self) -> None:
        """Check every field."""
        _at_least(1, micro=self.micro, context=self.context)
        _check_pieces("accumulation", self.accumulation, 1)
        if self.order not in ("random", "epochs"):
            raise ValueError(f"order must be 'random' or 'epochs'; got {self.order!r}")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Every `every` steps, the mean loss of random batches of the validation split: the same ones each time."""

    every: int = 1000
    batches: int = 2000
    batch_size: int = 4

    def __post_init__(self) -> None:
        """Check every field."""
        _at_least(1, every=self.every, batch_size=self.batch_size)
        _at_least(2, batches=self.batches)


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """A checkpoint every `every` steps; the last `keep` of them are kept."""

    every: int = 1000
    keep: int = 3

    def __post_init__(self) -> None:
        """Check every field."""
        _at_least(1, every=self.every, keep=self.keep)


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """A run, without its corpus, folder and device.

    steps: of the optimiser. vocabulary: the size that the corpus must have; None takes any. precision: "bfloat16" is
    autocast with float32 weights. tbptt: the number of consecutive windows over which the state is carried, until a
    document ends; None carries no state.

    >>> PretrainingConfig.from_dict({"name": "mine", "stpes": 3})
    Traceback (most recent call last):
    ...
    ValueError: the config has no field 'stpes'; did you mean 'steps'?
    """

    name: str
    steps: int
    model: ModelConfig
    optimizer: OptimizerConfig
    batch: BatchConfig
    schedule: ScheduleConfig = ScheduleConfig()
    validation: ValidationConfig = ValidationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    vocabulary: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    gradient_checkpointing: bool = False
    tbptt: int | None = None
    log_every: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every field."""
        _at_least(1, steps=self.steps, vocabulary=self.vocabulary, tbptt=self.tbptt, log_every=self.log_every)
        _at_least(0, seed=self.seed)
        if self.model.kind != "minmax" and (self.tbptt is not None or self.gradient_checkpointing):
            raise ValueError(f"tbptt and gradient_checkpointing are for kind 'minmax'; got {self.model.kind!r}")
        changes = [start for start, _ in self.batch.accumulation]
        if self.batch.order == "epochs" and any(start % (self.tbptt or 1) for start in changes):
            raise ValueError(
                f"with order 'epochs' accumulation must change at multiples of tbptt, {self.tbptt}; got {changes}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them and gives them back."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> PretrainingConfig:
        """The inverse of `to_dict`; a key that is not a field is an error."""
        return read_values(PretrainingConfig, values)
