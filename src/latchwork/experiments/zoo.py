"""Makes the zoo: `python -m latchwork.experiments.zoo [NAME ...]` trains networks until proved and writes them.

`--records`: certify the existing networks again and write new records; the description of training stays.
`--attempts`: train those of ATTEMPTS, which have not been proved so far; what came of it goes into attempts.json.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from latchwork import zoo
from latchwork.automata.certify import Proof, certify
from latchwork.files import read_json, write_json
from latchwork.learning.networks import NetworkPlan, train_and_prove
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import make_task
from latchwork.training import Attempt, ProofProtocol, train_until_proved
from latchwork.training.manifest import manifest

Plan = tuple[str, dict[str, Any], ProofProtocol]  # the task, the network's shape, how it is trained
SMALL: dict[str, Any] = {"levels": 3, "output_gate": False, "ffn_dropout": 0.0}
CLOSED: dict[str, Any] = {"conv_type": "gated", "conv_init_val": -6.0}  # little of the symbol before, at first
SELECTION: dict[str, Any] = {"reset_form": "selection", **CLOSED}
ZOO: dict[str, Plan] = {
    "latching-4": ("latching(4)", {"d_model": 32, "d_state": 12, "n_layers": 1}, ProofProtocol()),
    "latching-8": ("latching(8)", {"d_model": 32, "d_state": 12, "n_layers": 1}, ProofProtocol()),
    "latching-16": ("latching(16)", {"d_model": 32, "d_state": 12, "n_layers": 1}, ProofProtocol()),
    "latching-64": ("latching(64)", {"d_model": 48, "d_state": 12, "n_layers": 1, **CLOSED}, ProofProtocol()),
    "induction_heads-4": ("induction_heads(4)", {"d_model": 32, "d_state": 16, "n_layers": 1}, ProofProtocol()),
    "induction_heads-16": ("induction_heads(16)", {"d_model": 48, "d_state": 24, "n_layers": 1}, ProofProtocol()),
    "fflm": ("fflm(0.8)", {"d_model": 32, "d_state": 16, "n_layers": 1}, ProofProtocol()),
    "sequences-2": ("sequences(2)", {"d_model": 32, "d_state": 12, "n_layers": 2}, ProofProtocol(steps=1500)),
    "parity": (
        "parity",
        {"d_model": 16, "d_state": 4, "n_layers": 1, "degree": 2},
        ProofProtocol(steps=200, rounds=2, length=16, tokens=512, tries=1000),
    ),
    "s3": (
        "word_problem(S3)",
        {"d_model": 24, "d_state": 24, "n_layers": 1, "degree": 3, "levels": None, **SELECTION},
        ProofProtocol(steps=400, length=32, tokens=1024, learning_rate=0.01, later_rate=0.005),
    ),
}
# Units of places, each a machine: here two of four states. Latches of degree one come to no proof (attempts.json).
OF_PLACES: dict[str, tuple[str, NetworkPlan]] = {
    "sequences-3": ("sequences(3)", NetworkPlan(degree=6, units=16, d_model=64, rounds=20)),
}
SECONDS = 900.0  # of the training of one of OF_PLACES, at most
ATTEMPTS: dict[str, Plan] = {
    "sequences-3-degree-1": (
        "sequences(3)",
        {"d_model": 48, "d_state": 24, "n_layers": 3, "s_r_init": "spread", "levels": 9, **CLOSED},
        ProofProtocol(steps=1200, rounds=40, length=40, even="states", prune=12_000),
    ),
    "s3-degree-3": (
        "word_problem(S3)",
        {"d_model": 24, "d_state": 6, "n_layers": 1, "degree": 3},
        ProofProtocol(steps=300, rounds=2, length=16, tokens=512, tries=1000),
    ),
}
SEEDS = {"parity": 2}  # the one of seeds 0 to 3 that is proved; every other network has seed 0
TRAINING = ("training_seconds", "rounds", "protocol", "seed")  # of a record: how the network was trained
FOLDER = Path(__file__).parents[1] / "zoo"


def make(name: str, folder: Path = FOLDER) -> bool:
    """Train, and write if proved; whether it was. If not, attempts.json says how far it came."""
    if name in OF_PLACES:
        return _make_of_places(name, folder)
    seed = SEEDS.get(name, 0)
    attempt = _attempt(name, ZOO[name], seed)
    if not isinstance(attempt.result, Proof):
        _note(name, ZOO[name], [attempt], folder)
        return False
    training = {**_training(attempt), "protocol": asdict(ZOO[name][2]), "seed": seed}
    _write(folder / name, attempt.model, ZOO[name][0], attempt.result, training)
    return True


def _make_of_places(name: str, folder: Path) -> bool:
    task, plan = OF_PLACES[name]
    found = train_and_prove(make_task(task), plan, seconds=SECONDS, watch=lambda line: print(name, line, flush=True))
    if not isinstance(found.result, Proof):
        return False
    training = {"training_seconds": round(found.seconds, 1), "rounds": found.log, "protocol": asdict(plan), "seed": 0}
    _write(folder / name, found.model, task, found.result, training)
    return True


def _write(folder: Path, model: MinMaxRNC_LM, task: str, proof: Proof, training: dict[str, Any]) -> None:
    model.save(folder)
    write_json(folder / "proof.json", _record(task, proof, training))


def renew(name: str, folder: Path = FOLDER) -> bool:
    """Certify again, and write the record if it is proved; whether it was."""
    before = zoo.proof(name)
    task = make_task(before["task"])
    result = certify(zoo.load(name), Machine.from_task(task), no_answer=task.vocabulary)
    print(name, result, flush=True)
    if not isinstance(result, Proof):
        return False
    training: dict[str, Any] = {key: before[key] for key in TRAINING if key in before}
    write_json(folder / name / "proof.json", _record(before["task"], result, training))
    return True


def attempt(name: str, seeds: int = 3, folder: Path = FOLDER) -> bool:
    """Train with some seeds, write down what came of it; whether any was proved."""
    found = [_attempt(name, ATTEMPTS[name], seed) for seed in range(seeds)]
    _note(name, ATTEMPTS[name], found, folder)
    return any(isinstance(each.result, Proof) for each in found)


def _note(name: str, plan: Plan, found: list[Attempt], folder: Path) -> None:
    """What came of some seeds, in attempts.json."""
    task, shape, protocol = plan
    outcomes = [{"result": str(each.result), **_training(each)} for each in found]
    described = {"task": task, "shape": {**SMALL, **shape}, "protocol": asdict(protocol), "seeds": outcomes}
    attempts = read_json(folder / "attempts.json") or {}
    write_json(folder / "attempts.json", {**attempts, name: {**described, "manifest": _made()}})


def _attempt(name: str, plan: Plan, seed: int = 0) -> Attempt:
    task, shape, protocol = plan
    config = MinMaxRNCLMConfig.small(**{**SMALL, **shape})
    tell = lambda line: print(name, line, flush=True)  # noqa: E731
    return train_until_proved(make_task(task), config, seed=seed, protocol=protocol, tell=tell)


def _training(attempt: Attempt) -> dict[str, Any]:
    """How long it took, and what came of each round."""
    seconds = sum(float(str(each["training_seconds"])) for each in attempt.rounds)
    return {"training_seconds": round(seconds, 1), "rounds": attempt.rounds}


def _record(task: str, proof: Proof, training: dict[str, Any]) -> dict[str, Any]:
    return {"task": task, **asdict(proof), **training, "manifest": _made()}


def _made() -> dict[str, Any]:
    """Versions, commit and machine."""
    return {name: value for name, value in manifest({}).items() if name != "config"}


if __name__ == "__main__":
    torch.set_num_threads(1)
    options, wanted = ([each for each in sys.argv[1:] if each.startswith("--") is kind] for kind in (True, False))
    if options == ["--records"]:
        done = [renew(name) for name in wanted or zoo.names()]
    elif options == ["--attempts"]:
        done = [attempt(name) for name in wanted or ATTEMPTS]
    elif not options:
        done = [make(name) for name in wanted or [*ZOO, *OF_PLACES]]
    else:
        sys.exit(f"there are --records and --attempts; got {' '.join(options)}")
    sys.exit(0 if all(done) else 1)
