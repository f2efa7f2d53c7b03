"""A tiny corpus and a tiny run, for the tests of the training side."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from latchwork.baselines.registry import ModelConfig
from latchwork.data.shards import write_corpus
from latchwork.data.tokenizers import Characters
from latchwork.training.config import (
    BatchConfig,
    CheckpointConfig,
    OptimizerConfig,
    PretrainingConfig,
    ScheduleConfig,
    ValidationConfig,
)
from latchwork.training.engine import Progress

LETTERS = "abcdefgh"
TINY = PretrainingConfig(
    name="tiny",
    steps=6,
    model=ModelConfig(options={"d_model": 16, "d_state": 12, "n_layers": 2, "ffn_dropout": 0.1}),
    optimizer=OptimizerConfig(learning_rate=1e-2, weight_decay=((0, 0.1), (4, 0.0))),
    schedule=ScheduleConfig(warmup=0.2),
    batch=BatchConfig(micro=2, context=8, accumulation=((0, 1), (3, 2))),
    validation=ValidationConfig(every=3, batches=3, batch_size=2),
    checkpoint=CheckpointConfig(every=2, keep=2),
    log_every=1,
)


def tiny(**changes: Any) -> PretrainingConfig:
    return replace(TINY, **changes)


def make_corpus(folder: Path, seed: int = 0) -> Path:
    """Documents of random letters, each letter twice, so that there is something to learn."""
    draw = numpy.random.default_rng(seed)

    def documents(count: int) -> list[Any]:
        return [draw.integers(0, len(LETTERS), size=draw.integers(3, 30)).repeat(2) for _ in range(count)]

    write_corpus(folder, Characters(LETTERS), documents(40), documents(8), shard_tokens=500)
    return folder


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class CutOffError(Exception):
    """A run ends here."""


def cut_off_after(step: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.step == step:
            raise CutOffError

    return watch


TIMES = ("seconds", "processor_seconds", "tokens_per_second", "utilisation", "peak", "date")


def without_time(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: without_time(value) for name, value in values.items() if name not in TIMES}
    return [without_time(value) for value in values] if isinstance(values, list) else values
