"""Jobs, each a problem, a model, a learning rate and a seed; what a finished one leaves is one small file of JSON.

Two processes may work on the same folder: a job is locked while it runs, and a lock ends with its process. A job that
was killed leaves nothing, and is run again from its beginning.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from state_tracking_tasks import OURS, PROBLEMS, RATE, RATES, Problem, make_model, parameters
from torch import Tensor, nn

from latchwork import MinMaxRNC_LM
from latchwork.automata import Machine, certify
from latchwork.automata.findings import Counterexample, Proof
from latchwork.automata.prune import freeze_moves, graft, keep_followers, prune_states
from latchwork.automata.settle import settle_choices
from latchwork.evaluation.streaming import evaluate
from latchwork.files import read_json, write_text
from latchwork.seeds import seed_everything
from latchwork.tasks import Automaton, LastStep, Task, make_task
from latchwork.training import Learning, LengthCurriculum, learn_by_length
from latchwork.training.display import Display
from latchwork.training.engine import Watch
from latchwork.training.manifest import manifest

Record = dict[str, Any]
LENGTHS = (40, 128, 512, 8192)
LONG = 1 << 20  # tested only where there was no error at the last of LENGTHS
ANSWERS = 1 << 16  # steps of each test: so many sequences of its length
ROUNDS = 3  # of training a little more and asking for a proof
TRIAL = 1000  # between the seeds of one job's trials
WORDS, LENGTH = 64, 256  # on which a unit must follow the answers, to stay, or not be needed, to be taken out
SHORT = 8  # steps of the words that a network is trained on before units are taken out that follow no answer


@dataclass(frozen=True)
class Limits:
    """Where a job gives up: steps and seconds of its training; long: the length of the longest test."""

    steps: int = 10_000
    seconds: float = 600.0
    long: int = LONG


@dataclass(frozen=True)
class Job:
    """One training and its tests."""

    problem: Problem
    model: str
    rate: float
    seed: int

    @property
    def file(self) -> str:
        """The name of its record, which no other job has."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", self.problem.name).strip("-")
        return f"{words}_{self.model}_{self.rate:g}_{self.seed}.json"


def run_all(
    problems: Sequence[Problem],
    models: Sequence[str],
    seeds: int,
    folder: Path,
    limits: Limits,
    tell: Callable[[str], None],
    work: Callable[[Job, Limits], Record] | None = None,
    wait: float = 5.0,
) -> list[str]:
    """Run what has not been run; the errors of those that failed.

    Of another model than ours the first seed is trained at each of RATES, and then all seeds at the best of them.
    What another process is at is waited for, `wait` seconds at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failed: dict[Job, str] = {}
    while True:
        waiting = ran = 0
        for problem in problems:
            for model in models:
                for job in _known(problem, model, seeds, folder):
                    if job in failed or (folder / job.file).exists():
                        continue
                    try:
                        done = run_once(job, folder, limits, work or run, tell)
                    except Exception as error:  # one job must not stop the others
                        failed[job] = f"{job.file}: {type(error).__name__}: {error}"
                        tell(failed[job])
                        continue
                    ran, waiting = ran + done, waiting + (not done)
        if not ran and not waiting:
            return list(failed.values())
        if not ran:
            time.sleep(wait)


def run_once(
    job: Job, folder: Path, limits: Limits, work: Callable[[Job, Limits], Record], tell: Callable[[str], None]
) -> bool:
    """Run a job and write its record, unless it is there; False if another process is at it."""
    path = folder / job.file
    try:
        with FileLock(folder / f".{job.file}.lock", timeout=0):
            if not path.exists():
                record = work(job, limits)
                write_text(path, json.dumps(record) + "\n")
                tell(describe(record))
    except Timeout:
        return False
    return True


def _known(problem: Problem, model: str, seeds: int, folder: Path) -> Iterable[Job]:
    """The jobs that can be told already: the seeds at the best rate only when all rates have been tried."""
    if model == OURS:
        return [Job(problem, model, RATE, seed) for seed in range(seeds)]
    tried = [Job(problem, model, rate, 0) for rate in RATES]
    records = [read_json(folder / job.file) for job in tried]
    found = [record for record in records if record is not None]
    if len(found) < len(tried):
        return tried
    return [Job(problem, model, best_rate(found), seed) for seed in range(seeds)]


def best_rate(records: Sequence[Record]) -> float:
    """The rate of the record that was learnt in the fewest steps; else of the longest words, and most right answers."""

    def rank(record: Record) -> tuple[float, ...]:
        training = record["training"]
        steps = -training["steps"] if training["learnt"] else 0
        return training["learnt"], steps, training["length"], record["tests"][0]["accuracy"]

    return float(max(records, key=rank)["rate"])


def run(job: Job, limits: Limits) -> Record:
    """Train, test at every length, and of ours take out idle units and ask for a proof."""
    task = make_task(job.problem.task)
    dense = _dense(task)
    model, learning, curriculum, stuck = learn(job, task, limits)
    began = time.monotonic()
    record: Record = {
        "problem": job.problem.name,
        "task": job.problem.task,
        "length": job.problem.length,
        "model": job.model,
        "rate": job.rate,
        "seed": job.seed,
        "letters": dense.successor.shape[1] if isinstance(dense, Automaton) else dense.vocabulary,
        "units": vars(job.problem.units) if job.model == OURS else None,
        "parameters": parameters(model),
        "limits": vars(limits),
        "threshold": curriculum.threshold,
        "training": learning.to_dict(),
        "stuck": stuck,
        "tests": test(model, dense, limits.long),
    }
    record["test_seconds"] = round(time.monotonic() - began, 1)
    if job.model == OURS and learning.learnt:
        assert isinstance(model, MinMaxRNC_LM)
        record["proof"] = prove(model, task, dense, curriculum, job.seed, limits.long)
    record["solved"] = solved(record)
    described = manifest({})
    return {**record, **{name: described[name] for name in ("versions", "commit", "hardware", "date")}}


def learn(job: Job, task: Task, limits: Limits) -> tuple[nn.Module, Learning, LengthCurriculum, list[Record]]:
    """Train; one of ours that is stuck begins anew, with other weights, in what is left of the limits.

    Units of stuck trials that follow the answers are kept: where those of all trials together tell the answers apart,
    they become one network, of which the readout alone is trained. The model, its training with the steps and seconds
    of all trials, the curriculum, and the trials that were stuck.
    """
    problem, began = job.problem, time.monotonic()
    curriculum = LengthCurriculum(
        learning_rate=job.rate, longest=problem.length, steps=limits.steps, seconds=limits.seconds,
        threshold=problem.threshold, patience=problem.patience if job.model == OURS else float("inf"),
    )  # fmt: skip
    stuck: list[Record] = []
    parts = None
    with Display(f"{problem.name} {job.model} seed {job.seed}") as display:
        while True:
            seed_everything(job.seed + TRIAL * len(stuck))
            model = make_model(job.model, task, problem.units)
            steps, seconds = sum(each["steps"] for each in stuck), time.monotonic() - began
            left = replace(curriculum, steps=limits.steps - steps, seconds=max(1e-3, limits.seconds - seconds))
            learning = learn_by_length(model, task, left, seed=job.seed, watch=display.watch)
            if learning.stopped != "stuck":
                break
            assert isinstance(model, MinMaxRNC_LM)
            stuck.append({name: learning.to_dict()[name] for name in ("steps", "seconds", "length")})
            words = _dense(task).sample("validation", job.seed, WORDS, LENGTH)
            parts, found = gather(parts, model, *words)
            stuck[-1]["follow"] = found
            whole = None if parts is None else keep_followers(parts, *words)
            if whole is not None:
                model, steps, seconds = whole, steps + learning.steps, time.monotonic() - began
                learning = learn_readout(whole, task, curriculum, job.seed, display.watch)
                break
    learning.steps, learning.seconds = learning.steps + steps, learning.seconds + seconds
    return model, learning, curriculum, stuck


def gather(
    parts: MinMaxRNC_LM | None, model: MinMaxRNC_LM, tokens: Tensor, targets: Tensor
) -> tuple[MinMaxRNC_LM | None, int]:
    """The units of both networks that follow the answers, in one; and how many of the second's did."""
    found = find_followers(model, tokens, targets, partly=True)
    if found is None:
        return parts, 0
    both = found if parts is None else graft(parts, found, tokens)
    return keep_followers(both, tokens, targets, partly=True) or parts, count_units(found)


def learn_readout(model: MinMaxRNC_LM, task: Task, curriculum: LengthCurriculum, seed: int, watch: Watch) -> Learning:
    """Train at the full length, until it is learnt as anything is, what reads the units; their moves stay."""
    freeze_moves(model)
    only = replace(curriculum, shortest=curriculum.longest, steps=1000, patience=float("inf"))
    learning = learn_by_length(model, task, only, seed=seed, watch=watch)
    model.requires_grad_(True)
    return learning


def find_followers(
    model: MinMaxRNC_LM, tokens: Tensor, targets: Tensor, *, partly: bool = False
) -> MinMaxRNC_LM | None:
    """`keep_followers`; None for a network of several layers, whose units follow no answer alone."""
    if model.config.resolved_backbone.n_layers != 1:
        return None
    return keep_followers(model.eval(), tokens, targets, partly=partly)


def count_units(model: MinMaxRNC_LM) -> int:
    """How many units its layer has."""
    config = model.config.resolved_backbone
    return config.d_state // config.degree


def _dense(task: Task) -> Task:
    """The task with every answer: tests and proofs are of all."""
    return task.task if isinstance(task, LastStep) else task


def solved(record: Record) -> bool:
    """Whether it was learnt and there was no error in any test: of ours, in those of the network without idle units."""
    return bool(record["training"]["learnt"] and all(each["errors"] == 0 for each in last_tests(record)))


def last_tests(record: Record) -> list[Record]:
    """Those of the network as it was in the end: of ours without idle units, where it was learnt."""
    found: list[Record] = (record.get("proof") or record)["tests"]
    return found


def test(model: nn.Module, task: Task, long: int) -> list[Record]:
    """Accuracy at each length, over all steps up to it; at `long` only where the length before had no error."""
    found: list[Record] = []
    for length in (*[each for each in LENGTHS if each < long], long):
        if length == long and found and found[-1]["errors"]:
            break
        rows = max(1, min(256, ANSWERS // length))
        one = evaluate(model, task, seed=1, sequences=rows, length=length, rows=rows, chunk=min(length, 1024))
        errors = sum(asked - right for _, _, asked, right in one["positions"])
        answers = sum(asked for _, _, asked, _ in one["positions"])
        kept = {"constant": one["constant"], "positions": one["positions"]} if length < long else {}
        found.append({"length": length, "accuracy": one["average"], "errors": errors, "answers": answers, **kept})
    return found


def prove(model: MinMaxRNC_LM, task: Task, dense: Task, curriculum: LengthCurriculum, seed: int, long: int) -> Record:
    """`prune_and_certify`, and the tests of the network that it leaves."""
    smaller, record = prune_and_certify(model, task, dense, curriculum, seed)
    return {**record, "tests": test(smaller, dense, long)}


def prune_and_certify(
    model: MinMaxRNC_LM, task: Task, dense: Task, curriculum: LengthCurriculum, seed: int
) -> tuple[MinMaxRNC_LM, Record]:
    """Without its idle units, and after some more training: is the network right on all words?"""
    began, practised = time.monotonic(), 0
    words = dense.sample("validation", seed, WORDS, LENGTH)
    smaller = find_followers(model, *words)
    follows = smaller is not None
    if smaller is None:
        tune = short_words(curriculum)
        practised = learn_by_length(model, task, replace(tune, right=30, steps=3000), seed=500 + seed).steps
        smaller = prune_states(model.eval(), *dense.sample("validation", seed, WORDS, curriculum.longest))
    else:
        tune = after_pruning(curriculum, min(32, curriculum.longest))
    if smaller.config.resolved_backbone.n_layers == 1:
        freeze_moves(smaller)
    rounds: list[Record] = []
    for number in range(ROUNDS):
        if number and not follows:
            smaller.requires_grad_(True)  # it is not only how the states are read that is wrong
        learning = learn_by_length(smaller, task, tune, seed=1000 * (number + 1) + seed)
        settle_choices(smaller.eval(), words.tokens)
        found = certify(smaller, Machine.from_task(dense), no_answer=dense.vocabulary)
        rounds.append({"steps": learning.steps, "right": learning.learnt, "result": type(found).__name__.lower()})
        if isinstance(found, Proof):
            rounds[-1].update(states=found.states, margin=round(found.margin, 3))
            break
        if isinstance(found, Counterexample):
            rounds[-1].update(word=list(found.word))
        else:
            rounds[-1].update(reason=found.reason)
    seconds = time.monotonic() - began
    return smaller, {
        "result": rounds[-1]["result"],
        "units": count_units(smaller),
        "follows": follows,
        "practised": practised,
        "rounds": rounds,
        "certify_seconds": round(found.seconds, 2),
        "seconds": round(seconds, 1),
    }


def after_pruning(curriculum: LengthCurriculum, length: int) -> LengthCurriculum:
    """How a network is trained a little more: at one length, until it has long been right."""
    return replace(
        curriculum, learning_rate=curriculum.learning_rate / 2, shortest=length, longest=length, right=60, steps=1000,
        seconds=120.0, patience=float("inf"),
    )  # fmt: skip


def short_words(curriculum: LengthCurriculum) -> LengthCurriculum:
    """Four times as many words, all of them short: in long ones maps that merge points hide most mistakes."""
    tune = after_pruning(curriculum, min(SHORT, curriculum.longest))
    return replace(tune, tokens=4 * curriculum.tokens)


def describe(record: Record) -> str:
    """One line of it."""
    training, last = record["training"], record["tests"][-1]
    words = [
        f"{record['problem']} {record['model']} rate {record['rate']:g} seed {record['seed']}:",
        f"{training['stopped']} at length {training['length']} after {training['steps']} steps,",
        f"{training['seconds']:.0f} s, stuck {len(record['stuck'])} times;",
        f"{last['errors']} errors of {last['answers']} at length {last['length']}",
    ]
    if record.get("proof"):
        words.append(f"; {record['proof']['units']} units left, {record['proof']['result']}")
    return " ".join(words).replace(" ;", ";")


def read_all(folder: Path) -> list[Record]:
    """Every record in the folder, those of PROBLEMS in their order."""
    records = [read_json(path) for path in sorted(folder.glob("[!.]*.json"))]
    order = {name: number for number, name in enumerate(PROBLEMS)}
    found = [record for record in records if record is not None]
    return sorted(found, key=lambda each: (order.get(each["problem"], len(order)), each["model"], each["seed"]))


def make_threads_one() -> None:
    """A run uses one thread: two processes side by side use two cores better."""
    torch.set_num_threads(1)
