"""Learn machines that are not groups, and prove the networks: python studies/learning/run.py [names] [--seeds 5]"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch

from latchwork.automata import Machine
from latchwork.learning.networks import SPARE, NetworkPlan, train_and_prove
from latchwork.tasks import Automaton, Task, make_task
from latchwork.training.manifest import manifest

OUT = Path(__file__).parents[2] / "results" / "learning"


def random_machine(states: int, seed: int, bit: bool) -> Automaton:
    """A machine with two letters, drawn anew until every state is reached; asked for one bit, also until it is minimal.

    It is drawn from its own seed, so that five seeds are five machines.
    """
    random = numpy.random.default_rng((states, seed, bit))
    while True:
        successor = random.integers(0, states, (states, 2))
        output = random.integers(0, 2, states) if bit else numpy.arange(states)
        moore = Machine(successor, numpy.repeat(output[:, None], 2, 1))
        if moore.minimise().n_states == states:
            return Automaton(successor, output, name=f"random_{'bit' if bit else 'state'}({states}), machine {seed}")


def problem(name: str, seed: int) -> tuple[Task, NetworkPlan]:
    """The task and the plan of a name."""
    if name.startswith("random"):
        kind, states = name[:-1].split("(")
        return random_machine(int(states), seed, kind == "random_bit"), NetworkPlan(degree=int(states) + SPARE)
    task = make_task(name)
    if name == "modular_arithmetic":
        # A cascade: the term that is being read in one layer; in the next the sum of the terms before it, which needs
        # to see, at + and -, what the term was a step before.
        shape: dict[str, Any] = {"degree": 5 + SPARE, "units": 16, "d_model": 64, "layers": 2, "conv": "basic"}
        return task, NetworkPlan(**shape, patience=1500, rounds=30)
    return task, NetworkPlan(degree=Machine.from_task(task).minimise().n_states + SPARE)


NAMES = (
    *(f"tomita({k})" for k in range(1, 8)),
    *(f"random_{kind}({states})" for kind in ("state", "bit") for states in (4, 6, 8, 10)),
    "modular_arithmetic",
)


def main() -> None:
    """Run what has no record yet, one after the other, on one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help="problems; default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120, help="of one run")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for name in arguments.names:
            path = arguments.out / f"{name.replace(', ', '-').replace('(', '-').rstrip(')')}.jsonl"
            records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            if any(each["seed"] == seed for each in records):
                continue
            task, plan = problem(name, seed)
            found = train_and_prove(task, plan, seconds=arguments.seconds, seed=seed, watch=lambda t: print("  ", t))
            result = found.result
            record = {
                "name": name,
                "seed": seed,
                "task": task.name,
                "learnt": found.learnt,
                "proved": type(result).__name__ == "Proof",
                "result": None if result is None else type(result).__name__,
                "reason": getattr(result, "reason", ""),
                "word": list(getattr(result, "word", None) or ()),
                "degree": plan.degree,
                "units": found.units,
                "restarts": found.restarts,
                "steps": found.steps,
                "length": found.length,
                "seconds": round(found.seconds, 1),
                "limit": arguments.seconds,
                "log": found.log,
                "config": asdict(plan),
                **{
                    key: value
                    for key, value in manifest({}).items()
                    if key in ("versions", "commit", "hardware", "date")
                },
            }
            with path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(name, seed, record["result"], record["units"], record["steps"], record["seconds"], flush=True)


if __name__ == "__main__":
    main()
