"""Run the study, or what is left of it: `nice -n 19 python studies/latch/run.py`.

One run: one data set, one network, one seed, so many seconds of one thread's processor time for training. Its record is
results/latch/SET/NETWORK/SEED.json; a run with a record is not run again. Seeds come one after the other, so that a
study that is stopped is a smaller study.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from latch_networks import LAYER, Reader, count, make
from latch_problems import PROBLEMS, Problem
from torch.nn import functional as F

from latchwork.files import write_json
from latchwork.training.manifest import manifest

RESULTS = Path(__file__).parents[2] / "results" / "latch"
PARAMETERS, RATE, CLIP = 20_000, 3e-3, 1.0
LONGER = {"adding": 3}  # times the seconds: at 1,000 steps a batch takes long


def train(network: Reader, problem: Problem, seconds: float, seed: int) -> int:
    """AdamW with a rate that falls linearly to 0 with the time that has passed. Returns the number of steps."""
    random = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    steps, start = 0, time.process_time()
    while (passed := (time.process_time() - start) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - passed)
        inputs, lengths, targets = problem.draw(random)
        answer = network(inputs, lengths)
        loss = F.cross_entropy(answer, targets) if problem.classes else F.mse_loss(answer.squeeze(-1), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        steps += 1
    return steps


@torch.no_grad()
def evaluate(network: Reader, problem: Problem) -> float:
    """The share of right answers; a number is right within 0.04."""
    right, asked = 0, 0
    for inputs, lengths, targets in problem.test:
        answer = network(inputs, lengths)
        good = answer.argmax(-1) == targets if problem.classes else (answer.squeeze(-1) - targets).abs() < 0.04
        right, asked = right + int(good.sum()), asked + len(targets)
    return right / asked


def run(name: str, kind: str, seed: int, seconds: float) -> dict[str, object]:
    """One run; returns its record: what was found, then config, versions, commit and hardware."""
    torch.manual_seed(seed)
    problem = PROBLEMS[name]()
    network = make(kind, problem.features, max(problem.classes, 1), PARAMETERS)
    steps = train(network, problem, seconds, seed)
    network.eval()
    config = {"set": name, "network": kind, "seed": seed, "seconds": seconds, "rate": RATE, "clip": CLIP}
    return {
        "set": name,
        "network": kind,
        "seed": seed,
        "seconds": seconds,
        "parameters": count(network),
        "width": network.head.in_features // 2,
        "steps": steps,
        "accuracy": evaluate(network, problem),
        **manifest({**config, "parameters": PARAMETERS}),
    }


def main() -> None:
    """Every run that has no record yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--networks", nargs="+", default=list(LAYER), choices=list(LAYER))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in options.seeds:
        for kind, name in product(options.networks, options.sets):
            path = options.out / name / kind / f"{seed}.json"
            if path.exists():
                continue
            record = run(name, kind, seed, options.seconds * LONGER.get(name, 1))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, record)
            print(name, kind, seed, f"{record['accuracy']:.3f}", record["steps"], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
