"""Plans of tasks on two processes, as torchrun would start them."""

from __future__ import annotations

import os

import torch

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import make_task
from latchwork.training import TRAINERS, LengthCurriculum, ProofProtocol, TrainingProtocol, manifest, run_plan
from latchwork.training.distributed import processes
from latchwork.training.plan import Plan
from latchwork.training.plans.by_length import ByLength
from latchwork.training.plans.epochs import Epochs
from latchwork.training.plans.until_proved import UntilProved

SHAPE = MinMaxRNCLMConfig.small(d_model=16, d_state=8, n_layers=1, output_gate=False, ffn_dropout=0.0)


def plans() -> dict[str, Plan]:
    task = make_task("latching(2)")
    protocol = TrainingProtocol(sequences=40, validation_sequences=4, epochs=1)
    return {
        "by_length": ByLength(task, LengthCurriculum(longest=6, tokens=64, steps=12)),
        "epochs": Epochs(task, TRAINERS["minmax_bs8"], 8, protocol, 0),
        "until_proved": UntilProved(task, ProofProtocol(rounds=1, steps=8, tokens=128, length=8, tries=50)),
    }


def train_all(out: str, strategy: str = "ddp") -> None:
    torch.set_num_threads(1)
    manifest.commit = lambda: None  # git is slow to answer
    with processes("cpu") as here:
        for name, plan in plans().items():
            plan.log_every = 1
            torch.manual_seed(0)
            run_plan(plan, MinMaxRNC_LM(10, SHAPE), folder=f"{out}/{name}", here=here, strategy=strategy)


def run(rank: int, out: str, ports: list[int]) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    for strategy, port in zip(("ddp", "fsdp"), ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        train_all(f"{out}/{strategy}", strategy)
