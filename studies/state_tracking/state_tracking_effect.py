"""Do units of a higher degree beside the scalars help or hurt where scalars alone suffice?

    python studies/state_tracking/state_tracking_effect.py    about half an hour

The paper's small model as it is, and with four units of degree 4 beside its 40 scalars, on two of the paper's tasks,
each trained on 5,000 sequences for at most eight epochs, until every validation answer is right. A row that is there is
not run again. The rows are in results/state_tracking/effect/effect.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.files import read_json, write_json
from latchwork.seeds import seed_everything
from latchwork.tasks import make_task
from latchwork.training import TRAINERS, TrainingProtocol, train
from latchwork.training.manifest import manifest

RESULTS = Path(__file__).parents[2] / "results" / "state_tracking" / "effect" / "effect.json"
TASKS = ("sequences(2, balanced)", "induction_heads(16)")
VARIANTS: dict[str, dict[str, Any]] = {
    "scalars alone": {},
    "four free units of degree 4 beside": {"extra_units": ((4, 4),)},
    "four units of degree 4 that select beside": {"extra_units": ((4, 4),), "reset_form": "selection"},
}
SEEDS = 2
PROTOCOL = TrainingProtocol(sequences=5000, validation_sequences=200, epochs=8, perfect=1)


def run(task_name: str, words: str, seed: int) -> dict[str, Any]:
    """Train once; the validation accuracy after each epoch."""
    task = make_task(task_name)
    seed_everything(seed)
    model = MinMaxRNC_LM(task.vocabulary, MinMaxRNCLMConfig.small(**VARIANTS[words]))
    place = train(model, task, trainer=TRAINERS["minmax"], batch_size=64, protocol=PROTOCOL, seed=seed)
    return {
        "task": task_name,
        "model": words,
        "seed": seed,
        "parameters": sum(each.numel() for each in model.parameters()),
        "accuracies": [each["validation_accuracy"] for each in place.epochs],
        "seconds": round(place.seconds, 1),
    }


def main() -> None:
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = (read_json(RESULTS) or {"rows": []})["rows"]
    done = {(row["task"], row["model"], row["seed"]) for row in rows}
    for seed in range(SEEDS):
        for task in TASKS:
            for words in VARIANTS:
                if (task, words, seed) in done:
                    continue
                rows.append(run(task, words, seed))
                write_json(RESULTS, {"manifest": manifest({"seeds": SEEDS}), "rows": rows})
                print(task, words, seed, [round(each, 4) for each in rows[-1]["accuracies"]], flush=True)


if __name__ == "__main__":
    main()
