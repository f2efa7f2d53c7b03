"""The tasks of PD-SSM's tables, ours: words of up to 40 in training, the last answer of words of 40 to 256 in the test.

python studies/state_tracking/pd_ssm.py "S5, 32" --seeds 5   five seeds, a line each in results/state_tracking/pd_ssm
python studies/state_tracking/pd_ssm.py --report   the table of README.md, beside the published numbers

A seed that has a line is not run again. Generators of a group are drawn from the seed, so five seeds are five tasks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy
import torch
from state_tracking_jobs import Job, Limits, learn, make_threads_one, parameters, prune_and_certify
from state_tracking_tasks import OURS, PROBLEMS, RATE, Problem, Units

from latchwork import MinMaxRNC_LM
from latchwork.files import read_json, write_text
from latchwork.learning.networks import NetworkPlan, train_and_prove, train_network
from latchwork.reports.markdown import between, table
from latchwork.tasks import IGNORE, LastStep, Task, make_task
from latchwork.training.manifest import manifest

Record = dict[str, Any]
ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "state_tracking" / "pd_ssm"
PAGE = Path(__file__).with_name("README.md")
PUBLISHED = Path(__file__).with_name("pd_ssm.json")
MARKS = ("<!-- pd_ssm: written by studies/state_tracking/pd_ssm.py --report -->", "<!-- end of pd_ssm -->")
SHORTEST, LONGEST = 40, 256  # of the test's words
WORDS, ROWS = 2048, 128  # of a test, and of a batch in it
FRESH = 1_000_000  # the seed of the test's words, more than any of a training

# Groups are asked for every answer in training, where their name does not say the last; other languages for the last.
# An expression ends with a digit, and half of the lengths have no last answer: it is asked for its value at each digit.
TASKS = {
    **{
        name: Problem(f"word_problem({name}, {{seed}})", Units("selection", 5))
        for name in ("S5, 32", "S5, 8", "S5, 4", "A5, 12")
    },
    "S5, 32, last answer": Problem("last_step(word_problem(S5, 32, {seed}))", Units("selection", 5)),
    "cycle navigation": Problem("last_step(cycle_navigation)", Units("selection", 5)),
    "even pairs": Problem("last_step(even_pairs)", Units("transformation", 7, 32), threshold=0.98, patience=500),
    "parity": Problem("last_step(parity)", Units("transformation", 2, 2)),
    "modular arithmetic": PROBLEMS["modular_arithmetic"],
}
# Two layers of units with one level at one place, corrected by counterexamples: see studies/learning.
MODULAR = NetworkPlan(degree=7, units=16, d_model=64, layers=2, conv="basic", patience=1500, rounds=30)


def run(name: str, seed: int, limits: Limits) -> Record:
    """Train, test, take out idle units, ask for a proof, and test again."""
    problem = replace(TASKS[name], task=TASKS[name].task.format(seed=seed))
    task = make_task(problem.task)
    if name == "modular arithmetic":
        return run_modular(name, task, seed, limits)
    dense = task.task if isinstance(task, LastStep) else task
    job = Job(problem, OURS, RATE, seed)
    model, training, curriculum = train(name, job, task, limits)
    record: Record = {
        "name": name,
        "seed": seed,
        "config": {**asdict(problem), "rate": RATE, "limits": vars(limits), "curriculum": asdict(curriculum)},
        "parameters": parameters(model),
        "training": training,
        "trained": last_answers(model.eval(), dense, seed),
    }
    if training["learnt"]:
        smaller, record["proof"] = prune_and_certify(model, task, dense, curriculum, seed)
        record["pruned"] = last_answers(smaller, dense, seed)
    described = manifest({})
    return {**record, **{key: described[key] for key in ("versions", "commit", "hardware", "date")}}


def run_modular(name: str, task: Task, seed: int, limits: Limits) -> Record:
    """Train and prove; the test is of the network that comes of it, which has no idle units if it was learnt."""
    found = train_and_prove(task, MODULAR, seconds=limits.seconds, seed=seed)
    said = {"learnt": found.learnt, "steps": found.steps, "seconds": found.seconds, "length": found.length}
    record: Record = {
        "name": name,
        "seed": seed,
        "config": {"task": task.name, "plan": asdict(MODULAR), "limits": vars(limits)},
        "parameters": parameters(found.model),
        "training": said,
        "trained": last_answers(found.model.eval(), task, seed),
    }
    if found.result is not None:
        record["proof"] = {"result": type(found.result).__name__.lower(), "units": found.units, "rounds": found.log}
        record["pruned"] = record["trained"]
    described = manifest({})
    return {**record, **{key: described[key] for key in ("versions", "commit", "hardware", "date")}}


def train(name: str, job: Job, task: Task, limits: Limits) -> tuple[MinMaxRNC_LM, Record, Any]:
    """The network, its training and its curriculum.

    Even pairs is not a group: its units start with one level at one place.
    """
    if name != "even pairs":
        model, learning, curriculum, stuck = learn(job, task, limits)
        assert isinstance(model, MinMaxRNC_LM)
        kept = ("learnt", "stopped", "steps", "seconds", "length", "accuracy")
        return model, {**{key: learning.to_dict()[key] for key in kept}, "stuck": stuck}, curriculum
    units = job.problem.units
    plan = NetworkPlan(degree=units.degree, units=units.units, d_model=units.d_model, patience=job.problem.patience)
    found = train_network(task, plan, seconds=limits.seconds, seed=job.seed)
    training = {"learnt": found.learnt, "steps": found.steps, "seconds": found.seconds, "length": found.length}
    return found.model, {**training, "stuck": found.log[:-1]}, plan.curriculum


@torch.no_grad()
def last_answers(model: MinMaxRNC_LM, task: Task, seed: int) -> dict[str, int]:
    """How many last answers of fresh words are right; lengths are drawn evenly from those with an answer.

    The network reads words of the greatest length; what it says at a step is its last answer to the word so far.
    """
    random, right = numpy.random.default_rng((FRESH, seed)), 0
    for batch in range(WORDS // ROWS):
        tokens, targets = task.sample("evaluation", FRESH + 1000 * seed + batch, ROWS, LONGEST)
        steps = SHORTEST - 1 + numpy.flatnonzero((targets[0, SHORTEST - 1 :] != IGNORE).numpy())
        rows, last = torch.arange(ROWS), torch.from_numpy(random.choice(steps, ROWS))
        said = model(tokens)[0][rows, last].argmax(-1)
        right += int((said == targets[rows, last]).sum())
    return {"right": right, "words": WORDS, "shortest": SHORTEST, "longest": LONGEST}


def path_of(name: str, folder: Path) -> Path:
    """The records of a task."""
    return folder / f"{name.replace(', ', '-').replace(' ', '-')}.jsonl"


def read(name: str, folder: Path) -> list[Record]:
    """A task's records, by seed."""
    path = path_of(name, folder)
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted((json.loads(line) for line in lines), key=lambda each: int(each["seed"]))


def accuracy(record: Record, test: str = "trained") -> float:
    """In percent: as it was trained, or "pruned", without idle units."""
    return 100 * float(record[test]["right"] / record[test]["words"])


def spread(found: Sequence[float]) -> str:
    """The median, and the lowest and the highest where they differ; – if there are none."""
    if not found:
        return "–"
    middle, lowest, highest = (f"{value:.1f}" for value in (median(found), min(found), max(found)))
    return middle if lowest == highest else f"{middle} ({lowest} to {highest})"


def proved(record: Record) -> bool:
    """Whether the network is right on words of all lengths."""
    return bool("proof" in record and record["proof"]["result"] == "proof")


def report(folder: Path, published: Record) -> str:
    """One row a task: ours, and what others published."""
    models = list(published["models"])
    rows = []
    for name in TASKS:
        records = read(name, folder)
        cells = [name, "not run", "–", "–", "–", "–"]
        if records:
            seconds = median(each["training"]["seconds"] for each in records)
            units = [each["proof"]["units"] for each in records if proved(each)]
            cells = [
                name,
                f"{sum(map(proved, records))} of {len(records)}",
                spread([accuracy(each, "pruned") for each in records if proved(each)]),
                spread([accuracy(each) for each in records]),
                f"{seconds:.0f} of {max(each['config']['limits']['seconds'] for each in records):.0f}",
                f"{median(units):g}" if units else "–",
            ]
        others = [published["models"][model].get(name) for model in models]
        rows.append([*cells, *("–" if value is None else f"{value:g}" for value in others)])
    ours = ["ours: proved", "those proved, %", "all as trained, %", "seconds, of those allowed", "units left"]
    head = ["task", *ours, *(f"{model}¹" for model in models)]
    note = f"¹ Published by others, not measured here: {published['source']}. {published['about']}"
    return f"{table(head, rows)}\n\n{note}\n\n{failures(folder)}"


def failures(folder: Path) -> str:
    """What was not proved, a line each."""
    lines = []
    for name in TASKS:
        for each in read(name, folder):
            if proved(each):
                continue
            training, proof = each["training"], each.get("proof")
            last = proof["rounds"][-1] if proof else {}
            why = last.get("reason") or (f"wrong on {last['word']}" if "word" in last else "")
            end = f"{proof['result']}: {why}" if proof else f"not learnt, at length {training['length']}"
            lines.append(
                f"- {name}, seed {each['seed']}: {end}; {training['seconds']:.0f} s, {accuracy(each):.1f}% as trained."
            )
    return "Not proved:\n" + "\n".join(lines) if lines else "Every seed was proved."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no record yet, one after the other, on one thread; or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {'; '.join(TASKS)}; default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=180.0, help="of one training, at most")
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in TASKS]:
        parser.error(f"no task {unknown[0]!r}; there are {'; '.join(TASKS)}")
    if options.report:
        published = read_json(PUBLISHED)
        assert published is not None
        write_text(PAGE, between(MARKS, PAGE.read_text(), report(options.out, published)))
        return
    make_threads_one()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or TASKS:
        for seed in range(options.seeds):
            if any(each["seed"] == seed for each in read(name, options.out)):
                continue
            record = run(name, seed, Limits(seconds=options.seconds))
            with path_of(name, options.out).open("a") as file:
                file.write(json.dumps(record) + "\n")
            said = record["proof"]["result"] if "proof" in record else "not learnt"
            seconds = record["training"]["seconds"]
            print(f"{name}, seed {seed}: {said}, {accuracy(record):.2f}% as trained, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
