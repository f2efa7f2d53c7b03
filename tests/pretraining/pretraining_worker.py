"""A run in a process of its own, to be killed."""

from __future__ import annotations

import torch
from pretraining_cases import tiny

from latchwork.pretraining.config import BatchConfig, CheckpointConfig, ScheduleConfig, ValidationConfig
from latchwork.pretraining.run import pretrain
from latchwork.training import manifest

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
