"""Language models of characters of equal size: at equal tokens, at equal time, and by how much they have read.

    python benchmarks/characters.py TEXT --tune    what is best, by 500 steps on the training text alone; an hour
    python benchmarks/characters.py TEXT           about two hours; writes results/characters.json

TEXT is tinyshakespeare.txt, its last tenth held out, as nanoGPT does. The budget is that of nanoGPT's run on a CPU:
2,000 steps of 12 x 64 characters. Equal time is the processor time, on one thread, of the Transformer's 2,000 steps:
another model gets as many steps as it makes in it, and its schedule is made for them. Runs are kept under --out, and
those that are finished are not run again; so processes may each run some of the --models, and one more read all.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from latchwork.files import write_json
from latchwork.pretraining.config import PretrainingConfig
from latchwork.pretraining.configs import find_config
from latchwork.pretraining.corpus import Corpus
from latchwork.pretraining.evaluation import evaluate_by_position
from latchwork.pretraining.model import load_model
from latchwork.pretraining.prepare import prepare
from latchwork.pretraining.run import pretrain
from machine import describe

RESULTS = Path(__file__).parent.parent / "results" / "characters.json"
OURS, TRANSFORMER = "char-1m", "char-1m-transformer"
MODELS = (OURS, TRANSFORMER, "char-1m-lstm", "char-1m-gru", "char-1m-mamba")
TUNING_STEPS = 500
OPTIMIZERS = ("adamw", "muon")  # Muon's matrices at twice the rate
RATES = (2e-3, 4e-3, 8e-3)
# Of ours what the paper leaves open, at about as many parameters, with the optimiser and the rate that were best.
VARIANTS: dict[str, dict[str, Any]] = {
    "more state": {"d_model": 120, "d_state": 288},
    "less state": {"d_model": 176, "d_state": 96},
    "three layers": {"n_layers": 3, "d_model": 160, "d_state": 240},
    "six layers": {"n_layers": 6, "d_model": 112, "d_state": 176},
    "convolution with all channels": {"conv_type": "basic", "d_model": 128},
    "no output gate": {"output_gate": False, "d_state": 256},
    "kaiming": {"s_r_init": "kaiming"},
    "asymmetric": {"s_r_init": "asymmetric"},
    "gelu": {"ffn_act_fn": "gelu"},
    "relu^2": {"ffn_act_fn": "relu^2"},
    "eight units of degree 4 beside": {"d_state": 152, "groups": [[8, 4]]},
    "eight units that select beside": {"d_state": 136, "groups": [[8, 4]], "reset_form": "selection"},
}
CONTEXT = 16_384


def tune(text: Path, out: Path, models: Sequence[str]) -> dict[str, dict[str, float]]:
    """Each model's loss for each optimiser and rate, on the training text, the last tenth of which is held out."""
    whole = text.read_text()
    training = out / "training.txt"
    training.write_text(whole[: int(0.9 * len(whole))])
    corpus = make_corpus(training, out / "tuning-corpus")

    def loss(name: str, words: str, **changes: Any) -> float:
        config = replace(find_config(name), steps=TUNING_STEPS, **changes)
        record = run(config, corpus, out / "tuning" / f"{name} {words}".replace(" ", "-"))
        found: float = record["validation"]["mean"]
        print(f"{name:22} {words:32} {found:.4f} {record['processor_seconds']:6.1f} s", flush=True)
        return found

    losses: dict[str, dict[str, float]] = {}
    for name in models:
        model, optimizer = find_config(name).model, find_config(name).optimizer
        tried = {
            f"{kind} {rate:g}": replace(optimizer, name=kind, learning_rate=rate, matrix_rate=2.0)  # type: ignore[arg-type]
            for kind in OPTIMIZERS
            for rate in RATES
        }
        found = losses[name] = {words: loss(name, words, optimizer=each) for words, each in tried.items()}
        best = min(found, key=lambda words: found[words])
        for words, changes in VARIANTS.items() if name == OURS else ():
            changed = replace(model, options={**model.options, **changes})
            found[words] = loss(name, words, model=changed, optimizer=tried[best])
    return losses


def study(text: Path, out: Path, seeds: int, models: Sequence[str]) -> dict[str, Any]:
    """Every model for every seed, at equal tokens and at equal time."""
    corpus = make_corpus(text, out / "corpus")
    tokens = {
        name: [run_seed(find_config(name), seed, corpus, out / "tokens") for seed in range(seeds)] for name in models
    }
    if TRANSFORMER not in models:
        return {}  # its time is the budget of all
    budget = statistics.median(each["processor_seconds"] for each in tokens[TRANSFORMER])
    found: dict[str, Any] = {}
    for name in models:
        config = find_config(name)
        own = statistics.median(each["processor_seconds"] for each in tokens[name])
        steps = max(1, round(config.steps * budget / own))
        timed = [run_seed(replace(config, steps=steps), seed, corpus, out / "time") for seed in range(seeds)]
        found[name] = {
            "parameters": tokens[name][0]["parameters"],
            "optimizer": asdict(config.optimizer),
            "equal_tokens": summary(tokens[name]),
            "equal_time": summary(timed),
            "positions": by_position(out / "tokens" / f"{name}-seed0", corpus),
        }
    return {"budget_processor_seconds": budget, "models": found}


def run_seed(config: PretrainingConfig, seed: int, corpus: Path, out: Path) -> dict[str, Any]:
    record = run(replace(config, seed=seed), corpus, out / f"{config.name}-seed{seed}")
    loss, seconds = record["validation"]["mean"], record["processor_seconds"]
    print(f"{config.name:22} seed {seed} steps {config.steps:5} loss {loss:.4f} {seconds:6.1f} s", flush=True)
    return record


def run(config: PretrainingConfig, corpus: Path, out: Path) -> dict[str, Any]:
    return pretrain(config, corpus, out, peak=1.0)  # what part of the machine is used is not asked here


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    losses = [each["validation"]["mean"] for each in records]
    return {
        "losses": losses,
        "margins": [each["validation"]["margin"] for each in records],
        "mean": statistics.mean(losses),
        "spread": statistics.stdev(losses) if len(losses) > 1 else None,
        "steps": records[0]["step"],
        "tokens": records[0]["tokens"],
        "processor_seconds": [each["processor_seconds"] for each in records],
    }


def by_position(path: Path, corpus: Path) -> list[list[Any]]:
    """The loss after so many characters, from 1 to 16,384, in six windows of the validation text."""
    split = Corpus(corpus).validation
    length = min(CONTEXT, (len(split) - 1) // 2)
    found = evaluate_by_position(load_model(path / "model"), split, length=length, windows=6, rows=2)
    positions: list[list[Any]] = found["positions"]
    return positions


def make_corpus(text: Path, out: Path) -> Path:
    if not out.exists():
        prepare([text], out, "characters", validation_fraction=0.1)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--tune", action="store_true", help="learning rates, and nothing else")
    parser.add_argument("--out", type=Path, default=Path("runs/characters"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="some of them: nothing is written")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.tune:
        name, found = "characters_tuning.json", {"losses": tune(arguments.text, arguments.out, arguments.models)}
    else:
        name, found = RESULTS.name, study(arguments.text, arguments.out, arguments.seeds, arguments.models)
    if set(arguments.models) == set(MODELS):
        write_json(RESULTS.with_name(name), {"machine": describe(1), **found})


if __name__ == "__main__":
    main()
