"""Runs in processes of their own: to be killed, or two that share one."""

from __future__ import annotations

import os
import signal
import weakref
from contextlib import nullcontext, suppress
from dataclasses import replace

import torch
from pretraining_cases import CutOffError, tiny

from latchwork.baselines.registry import ModelConfig
from latchwork.signals import Stopped
from latchwork.training import distributed, manifest
from latchwork.training import engine as loop
from latchwork.training import pretrain as run
from latchwork.training.config import (
    BatchConfig,
    CheckpointConfig,
    PretrainingConfig,
    ScheduleConfig,
    ValidationConfig,
)
from latchwork.training.distributed import Strategy
from latchwork.training.pretrain import pretrain

KILLED = tiny(
    steps=200,
    schedule=ScheduleConfig(shape="cosine"),
    batch=BatchConfig(micro=2, context=6, accumulation=((0, 1), (100, 2))),
    tbptt=3,
    validation=ValidationConfig(every=20, batches=2, batch_size=1),
    checkpoint=CheckpointConfig(every=4, keep=2),
    log_every=5,
)


def run_quietly(corpus: str, out: str) -> None:
    torch.set_num_threads(1)
    manifest.commit = lambda: None  # git is slow to answer
    pretrain(KILLED, corpus, out, peak=1.0)


def die_before_the_record(corpus: str, out: str, threads: int) -> None:
    torch.set_num_threads(threads)  # sums round otherwise with another number
    run.save_model = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    pretrain(tiny(), corpus, out, peak=1.0)


PLAIN = tiny(
    model=replace(tiny().model, options={**tiny().model.options, "ffn_dropout": 0.0}),
    batch=BatchConfig(micro=2, context=8, accumulation=((0, 1), (3, 3))),
    validation=ValidationConfig(every=3, batches=3, batch_size=2),
)
STREAMS = replace(PLAIN, tbptt=6)
BASELINE = replace(PLAIN, model=ModelConfig(kind="lstm", options={"n_layers": 1, "width": 8}))
ORTHOGONAL = replace(PLAIN, optimizer=replace(PLAIN.optimizer, name="muon"))
# out, config, strategy, after how many steps it is cut off, or, if negative, SIGTERM comes to the second process alone;
# a run comes twice to be resumed.
TWO_PROCESSES: tuple[tuple[str, PretrainingConfig, Strategy, int | None], ...] = (
    ("ddp", PLAIN, "ddp", None),
    ("ddp-cut", PLAIN, "ddp", 5),
    ("ddp-stopped", PLAIN, "ddp", -3),
    ("ddp-stopped", PLAIN, "ddp", None),
    ("ddp-to-fsdp", PLAIN, "ddp", 3),
    ("ddp-to-fsdp", PLAIN, "fsdp", None),
    ("fsdp-cut", PLAIN, "fsdp", 5),
    ("fsdp", PLAIN, "fsdp", 3),
    ("fsdp", PLAIN, "fsdp", None),
    ("streams", STREAMS, "ddp", 3),
    ("streams", STREAMS, "ddp", None),
    ("streams-cut", STREAMS, "ddp", 3),
    ("lstm", BASELINE, "fsdp", None),
    ("muon", ORTHOGONAL, "fsdp", 3),
    ("muon", ORTHOGONAL, "fsdp", None),
)


def run_two(rank: int, corpus: str, out: str, ports: list[int]) -> None:
    """One of two processes, as torchrun would start it."""
    torch.set_num_threads(1)
    manifest.commit = lambda: None
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    step = loop.Training._step
    left = watch_ddp()
    for port, (name, config, strategy, cut) in zip(ports, TWO_PROCESSES, strict=True):
        os.environ["MASTER_PORT"] = str(port)

        def cut_off(self: loop.Training, cut: int | None = cut) -> tuple[float, float]:
            if self.place.step == cut:
                raise CutOffError
            if cut is not None and self.place.step == -cut and rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(self)

        loop.Training._step = cut_off
        with nullcontext() if cut is None else suppress(CutOffError, Stopped):
            record = pretrain(config, corpus, f"{out}/{name}", strategy=strategy, peak=1.0)
            assert cut is None
            assert bool(record) == (rank == 0)
    assert left == [0] * len(TWO_PROCESSES)  # see Training.close


def watch_ddp() -> list[int]:
    """Filled whenever the processes part: how many DDP are left."""
    made: weakref.WeakSet[object] = weakref.WeakSet()
    left: list[int] = []
    wrap, part = distributed.DistributedDataParallel, torch.distributed.destroy_process_group

    class Watched(wrap):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            made.add(self)

    def leave() -> None:
        left.append(len(made))
        part()

    distributed.DistributedDataParallel = Watched  # type: ignore[misc]
    torch.distributed.destroy_process_group = leave
    return left
