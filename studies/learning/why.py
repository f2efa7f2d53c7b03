"""Why the start decides: one level in a unit, or one at every place. python studies/learning/why.py

Both are trained alike, for at most so many steps. Then, on new random words: which share of answers is wrong by length
and by transition, and how many different states a unit was in.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy
import torch
from run import OUT, problem

from latchwork.automata import Machine
from latchwork.learning.networks import make_network
from latchwork.machines.words import states_before
from latchwork.training import learn_by_length

ROWS, LENGTH = 500, 40


def measure(name: str, seed: int, start: str, steps: int) -> dict[str, object]:
    """Train once, and look."""
    task, plan = problem(name, seed)
    torch.manual_seed(seed)
    model = make_network(task.vocabulary, replace(plan, start=start))
    learning = learn_by_length(model, task, replace(plan.curriculum, steps=steps), seed=seed)
    model.eval()
    tokens, targets = task.sample("validation", 1, ROWS, LENGTH)
    seen: list[torch.Tensor] = []
    handle = model.backbone.layers[0].neuron.cells[0].register_forward_hook(lambda _, __, x: seen.append(x))
    with torch.no_grad():
        wrong = (model(tokens)[0].argmax(-1) != targets).numpy()
    handle.remove()
    units = seen[0].view(ROWS * LENGTH, plan.units, plan.degree)
    states = [len(torch.unique(unit, dim=0)) for unit in units.unbind(1)]
    machine = Machine.from_task(task)
    before = states_before(machine, tokens.numpy())
    by_transition = [
        (float(wrong[here].mean()), int(here.sum()), state, letter)
        for state in range(machine.n_states)
        for letter in range(machine.n_symbols)
        if (here := (before == state) & (tokens.numpy() == letter)).any()
    ]
    worst = sorted(by_transition, reverse=True)[:3]
    return {
        "name": name,
        "seed": seed,
        "start": start,
        "stopped": learning.stopped,
        "steps": learning.steps,
        "length": learning.length,
        "wrong": float(wrong.mean()),
        "wrong_by_length": {str(t): float(wrong[:, t - 1].mean()) for t in (1, 2, 4, 8, 16, 32, 40)},
        "words_wrong": float(wrong.any(1).mean()),
        "wrong_again_after_right": float(
            numpy.mean([(~row[row.argmax() :]).any() for row in wrong if row.any()] or [0])
        ),
        "worst_transitions": [
            {"state": state, "letter": letter, "wrong": round(share, 4), "of": count}
            for share, count, state, letter in worst
        ],
        "states_of_a_unit": sorted(states),
        "places": plan.degree,
    }


def main() -> None:
    """Four problems, both starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder: Path = OUT / "start"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tomita(3)", "random_state(6)", "random_state(8)", "random_bit(6)"):
        for start in ("one_hot", "levels"):
            found = measure(name, 0, start, arguments.steps)
            with (folder / "why.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(name, start, found["stopped"], found["steps"], found["length"], found["wrong"], flush=True)


if __name__ == "__main__":
    main()
