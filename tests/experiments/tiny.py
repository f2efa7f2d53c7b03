"""An experiment of a second, for tests of what runs experiments."""

from dataclasses import asdict

from latchwork.experiments import Experiment
from latchwork.training import EvaluationProtocol, Scale, TrainingProtocol

TINY = Experiment(
    name="tiny/minmax",
    table="latching",
    task="latching(2)",
    model="minmax-s",
    trainer="minmax",
    n_layers=1,
    changes={"d_model": 8, "d_state": 4},
    published=(100.0, 0.0),
)


def scale(**training):
    return Scale(
        name="smoke",
        training=TrainingProtocol(
            **{"sequences": 192, "validation_sequences": 8, "epochs": 2, "min_seeds": 1, "max_seeds": 1, **training}
        ),
        evaluation=EvaluationProtocol(length=600, sequences=4, min_seeds=2, max_seeds=3, rows=3, chunk=256),
    )


def job(out, experiment=TINY, seed=0, **training):
    return {
        "experiment": asdict(experiment),
        "scale": asdict(scale(**training)),
        "batch_size": 64,
        "seed": seed,
        "out": str(out),
        "threads": 1,
        "device": "cpu",
        "seconds_left": 1e9,
    }


def without_time(record):
    """A record without what differs between two runs: seconds, dates, the commit."""
    if isinstance(record, dict):
        return {name: without_time(each) for name, each in record.items() if name not in ("seconds", "manifest")}
    return [without_time(each) for each in record] if isinstance(record, list) else record
