"""Makes the zoo: `python -m latchwork.zoo.make [NAME ...]` trains each network until it is proved, and writes it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from latchwork.automata.certify import Proof
from latchwork.automata.prove import ProofProtocol, train_until_proved
from latchwork.files import write_json
from latchwork.models import MinMaxRNCLMConfig
from latchwork.tasks import make_task
from latchwork.training.manifest import manifest

SMALL: dict[str, Any] = {"levels": 3, "output_gate": False, "ffn_dropout": 0.0}
ZOO: dict[str, tuple[str, dict[str, Any], ProofProtocol]] = {
    "latching-4": ("latching(4)", {"d_model": 32, "d_state": 12, "n_layers": 1}, ProofProtocol()),
    "latching-8": ("latching(8)", {"d_model": 32, "d_state": 12, "n_layers": 1}, ProofProtocol()),
    "latching-16": ("latching(16)", {"d_model": 32, "d_state": 16, "n_layers": 1}, ProofProtocol()),
    "induction_heads-4": ("induction_heads(4)", {"d_model": 32, "d_state": 16, "n_layers": 1}, ProofProtocol()),
    "fflm": ("fflm(0.8)", {"d_model": 32, "d_state": 16, "n_layers": 1}, ProofProtocol()),
    "sequences-2": ("sequences(2)", {"d_model": 32, "d_state": 12, "n_layers": 2}, ProofProtocol(steps=1500)),
}


def make(name: str, folder: Path) -> bool:
    """Train, and write if proved; whether it was."""
    task, shape, protocol = ZOO[name]
    config = MinMaxRNCLMConfig.small(**SMALL, **shape)
    attempt = train_until_proved(make_task(task), config, protocol=protocol, watch=lambda line: print(name, line))
    if not isinstance(attempt.result, Proof):
        return False
    attempt.model.save(folder / name)
    described = {name: value for name, value in manifest({}).items() if name != "config"}
    record = {"task": task, **asdict(attempt.result), "rounds": attempt.rounds, "manifest": described}
    write_json(folder / name / "proof.json", record)
    return True


if __name__ == "__main__":
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or list(ZOO)
    sys.exit(0 if all([make(name, Path(__file__).parent) for name in wanted]) else 1)
