"""Bring the records of results/ to the form that a run leaves today: python results/convert.py

A record holds the complete configuration of its model under "config", and no numbers of the paper: reports join them.
What an old record does not say (limits of the training, for one) stays out of its config.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from latchwork.experiments import EXPERIMENTS
from latchwork.files import write_json, write_text
from latchwork.training.config import PretrainingConfig
from latchwork.training.pretrain import complete
from latchwork.training.trainer import TRAINERS

HERE = Path(__file__).parent


def convert_experiment(record):
    """A record of `latchwork run`."""
    experiment = EXPERIMENTS[record["experiment"]]
    config = {
        "plan": "epochs",
        **{name: getattr(experiment, name) for name in ("name", "table", "task")},
        "model": {"name": experiment.model, **experiment.model_config().resolved()},
        "trainer": asdict(TRAINERS[experiment.trainer]),
        "scale": {"name": record["scale"], "evaluation": {"length": record["evaluation"]["length"]}},
        "batch_size": record["batch_size"],
        "seed": record["seed"],
        "threads": record["manifest"]["hardware"]["threads"],
        "device": "cpu",
    }
    assert dict(record["changes"]) == dict(experiment.changes), record["experiment"]
    kept = {name: value for name, value in record.items() if name not in ("published", "converged", "config")}
    kept["training"].setdefault("hours", None)
    return {"config": config, **kept}


def convert_characters(record):
    """A record of the characters study. A field that was not there yet when it was written gets its default."""
    known = {name: value for name, value in record["config"].items() if name not in ("plan", "corpus")}
    return {**record, "config": complete(PretrainingConfig.from_dict(known))}


if __name__ == "__main__":
    count = 0
    for path in sorted((HERE / "laptop").rglob("record.json")):
        write_json(path, convert_experiment(json.loads(path.read_text())))
        count += 1
    for stage in ("tokens", "time", "tuning", "subwords"):
        for path in sorted((HERE / "characters" / stage).glob("*.json")):
            write_text(path, json.dumps(convert_characters(json.loads(path.read_text()))) + "\n")
            count += 1
    print(f"{count} records")
