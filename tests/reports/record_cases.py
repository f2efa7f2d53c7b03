"""Records as a run leaves them, made up."""

import json
import math
from itertools import pairwise

from latchwork.evaluation.statistics import by_sequence


def make_record(
    experiment="latching-4/minmax-s",
    *,
    accuracy=1.0,
    validation=None,
    seed=0,
    batch_size=64,
    scale="laptop",
    epochs=4,
    constant=0.25,
    change=0.5,
    length=1 << 10,
    margin=0.01,
    **fields,
):
    """One record. Its accuracy falls with the position; of its 16 sequences as many are right as give `accuracy`."""
    task, model = experiment.split("/")[-2:]
    table = experiment.split("/")[0].split("-")[0]
    name, *sizes = task.split("-")
    validation = accuracy if validation is None else validation
    edges = sorted({round(length ** (i / 16)) for i in range(17)} - {1} | {0})
    buckets = list(pairwise(edges))
    shares = [min(1.0, accuracy + (1 - accuracy) * math.exp(-place / 4)) for place in range(len(buckets))]
    positions = [
        [a, b, 16 * (b - a), round(share * 16 * (b - a))] for (a, b), share in zip(buckets, shares, strict=True)
    ]
    interval = {"mean": accuracy, "low": max(0.0, accuracy - margin), "high": min(1.0, accuracy + margin)}
    return {
        "experiment": experiment,
        "table": table,
        "task": f"{name}({', '.join(sizes)})",
        "model": model.split("_")[0],
        "trainer": "minmax",
        "n_layers": 2,
        "changes": {},
        "published": [100.0, 0.0],
        "converged": None,
        "scale": scale,
        "batch_size": batch_size,
        "seed": seed,
        "parameters": 123_456,
        "vocabulary": 20,
        "training": {
            "stopped": "all epochs",
            "best_epoch": epochs - 1,
            "train_accuracy": validation,
            "validation_accuracy": validation,
            "seconds": 90.0,
            "tokens": 10_000,
            "epochs": [
                {
                    "loss": 2.0 * 0.3**epoch + seed / 100,
                    "validation_loss": 2.0 * 0.4**epoch,
                    "validation_accuracy": validation * (1 - 0.5 ** (epoch + 1)),
                    "learning_rate": 1e-3,
                    "seconds": 20.0,
                }
                for epoch in range(epochs)
            ],
        },
        "evaluation": {
            "length": length,
            "sequences": 16,
            "average": interval,
            "minimum": {name: value / 2 for name, value in interval.items()},
            "change": change,
            "changes": 100,
            "constant": constant,
            "expected_constant": constant,
            "stopped": "sure",
            "by_sequence": by_sequence([length] * 16, [rights(accuracy * 16 - place, length) for place in range(16)]),
            "positions": positions,
            "data_sets": [],
            "seconds": 7200.0,
        },
        "manifest": {
            "versions": {"python": "3.11.2", "torch": "2.13.0", "xlstm": None},
            "commit": "0123456789abcdef",
            "hardware": {"processor": "A <fast> & small one", "cores": 2, "gpu": None},
            "date": "2026-01-02T03:04:05+00:00",
        },
        **fields,
    }


def rights(share, length):
    """How many of the answers of a sequence are right."""
    return round(min(1, max(0, share)) * length)


def as_older_versions_left_it(record):
    """Without what a record did not hold at first."""
    new = ("expected_constant", "stopped", "by_sequence")
    return {**record, "evaluation": {name: each for name, each in record["evaluation"].items() if name not in new}}


def write_record(folder, record):
    """Write it where a run would."""
    run = folder / record["scale"] / record["experiment"] / f"batch{record['batch_size']}-seed{record['seed']}"
    run.mkdir(parents=True)
    (run / "record.json").write_text(json.dumps(record))
    return run


def some_records():
    """Two tables and an ablation, several models, one to three seeds."""
    records = [make_record("latching-4/minmax-s", seed=seed) for seed in range(3)]
    records += [
        make_record("latching-4/mamba-s", seed=seed, accuracy=0.5 + seed / 8, published=[52.3, 2.3], epochs=6)
        for seed in range(2)
    ]
    records += [
        make_record("latching-16/slstm-s", accuracy=0.0625, constant=0.0625, published=[40.4, 0.2]),
        make_record("latching-16/minmax-s", accuracy=0.99999),
        make_record("induction_heads-16/minmax-s_bs8", batch_size=8, change=None),
        make_record("sequences-2-balanced/minmax-s", published=None, scale="smoke"),
    ]
    records += [
        make_record(
            f"ablation/induction_heads-16/40-{'gate' if gate else 'no_gate'}-basic-kaiming",
            seed=seed,
            accuracy=0.9,
            validation=1.0 if seed != gate else 0.9,
            table="ablation",
            task="induction_heads(16)",
            model="minmax-s",
            published=None,
            converged=[10, 10] if gate else None,
            changes={"output_gate": gate, "conv_type": "basic"},
        )
        for gate in (True, False)
        for seed in range(3)
    ]
    return records
