"""Training steps of paper-112m beside the paper's own package, in the same loop: tokens a second, and peak memory.

    python benchmarks/pretraining.py    about 10 minutes, 8 GB; writes benchmarks/results/pretraining.json

One thread, float32, one sequence of 1,024 tokens a step, AdamW as the configuration says. Steps of both take turns in
one process; memory is that of a first step in a process of its own. On a machine that does other work too, the seconds
of the processor say more than those of the clock; both are written down.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from latchwork.baselines.registry import make_model, minmax_config
from latchwork.training.config import BatchConfig
from latchwork.training.distributed import Processes
from latchwork.training.engine import Training
from latchwork.training.flops import flops_per_token, measure_peak
from latchwork.training.plans.steps import Steps
from latchwork.training.presets import GPT2_VOCABULARY, PAPER
from latchwork.training.run_folder import RunFolder
from machine import describe
from memory import resident
from model_contenders import OURS, PEER, paper_model, parameters

RESULTS = Path(__file__).parent / "results" / "pretraining.json"
HERE = Processes(0, 1, torch.device("cpu"))


class Peer(nn.Module):
    """The paper's model with our interface."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> tuple[Tensor, None]:
        return self.model(tokens, unroll_steps=tokens.shape[1]), None


class RandomTokens:
    """As much text as there may be."""

    starts = numpy.zeros(1, numpy.int64)

    def __len__(self) -> int:
        return 1 << 30

    def read(self, start: int, length: int) -> Any:
        return numpy.random.default_rng(start).integers(GPT2_VOCABULARY, size=length)


def make_training(name: str, context: int, folder: Path) -> Training:
    torch.manual_seed(0)
    config = replace(PAPER, batch=BatchConfig(micro=1, context=context), precision="float32", compile=False)
    ours = minmax_config(PAPER.model.options)
    model = make_model(PAPER.model, GPT2_VOCABULARY) if name == OURS else Peer(paper_model(GPT2_VOCABULARY, ours))
    plan = Steps(config, (RandomTokens(), RandomTokens()))
    return Training(plan, model, folder=RunFolder(folder), here=HERE)


def step(training: Training) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    training._step()
    training.place.step += 1
    return time.perf_counter() - clock, time.process_time() - processor


def memory(name: str, context: int) -> int:
    """How far model, optimiser and one step raise the resident memory, in bytes."""
    before = resident("VmRSS")
    with tempfile.TemporaryDirectory() as folder:
        step(make_training(name, context, Path(folder)))
    return resident("VmHWM") - before


def measure(context: int, steps: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        trainings = {name: make_training(name, context, Path(folder) / name) for name in (OURS, PEER)}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in trainings}
        for turn in range(steps + 1):
            for name, training in trainings.items():
                found = step(training)
                print(f"{name}: {found[0]:.1f} s, {found[1]:.1f} s of the processor", file=sys.stderr, flush=True)
                if turn:  # the first warms up
                    times[name].append(found)
    flops = flops_per_token(trainings[OURS].model, PAPER.model, context)
    rows = []
    for name, training in trainings.items():
        wall, processor = (statistics.median(column) for column in zip(*times[name], strict=True))
        rows.append(
            {
                "contender": name,
                "parameters": parameters(training.model),
                "steps": steps,
                "tokens/s": context / wall,
                "tokens/s of the processor": context / processor,
                "GFLOP/s of the processor": flops * context / processor / 1e9,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=int, default=PAPER.batch.context)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--memory", choices=[OURS, PEER], help="print this contender's memory in bytes, and end")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        print(memory(options.memory, options.context))
        return
    machine = describe(threads=1)
    peak = measure_peak(HERE.device, [torch.float32])
    rows = []
    sizes = {}
    for name in (OURS, PEER):
        command = [sys.executable, __file__, "--memory", name, "--context", str(options.context)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
        sizes[name] = int(done.stdout.split()[-1])
        print(f"{name}: {sizes[name] / 1e6:,.0f} MB", file=sys.stderr, flush=True)
    for row in measure(options.context, options.steps):
        rows.append({**row, "peak MB": sizes[row["contender"]] / 1e6})
    found = {"machine": machine, "context": options.context, "peak GFLOP/s": peak / 1e9, "rows": rows}
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    for row in rows:
        print(
            f"{row['contender']:10} {row['parameters']:,} parameters, {row['tokens/s']:.1f} tokens/s, "
            f"{row['tokens/s of the processor']:.1f} by the processor's time, {row['peak MB']:,.0f} MB"
        )


if __name__ == "__main__":
    main()
