"""`learn`: from labelled traces, or from a teacher, to a machine and a network that is proved to be it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, Literal

import numpy

from latchwork.automata import Machine, Proof, StateExplosion, certify, extract
from latchwork.learning.hypotheses import differences, only_seen, states_decided
from latchwork.learning.learned import Learned, compile_and_certify
from latchwork.learning.merging import (
    GaveUp,
    Merging,
    Trial,
    as_good_as_the_best,
    merge,
    merge_by_cross_validation,
    rank,
)
from latchwork.learning.networks import SPARE, NetworkPlan, prune, train_network
from latchwork.learning.teacher import Teacher, ask, compare
from latchwork.learning.trace_task import TraceTask
from latchwork.learning.traces import Name, Names, Score, Traces, read, score, split
from latchwork.models import MinMaxRNC_LM
from latchwork.tasks.task import IGNORE
from latchwork.training import LengthCurriculum

FEW = 10  # traces: of fewer none is held out
MERGING = 0.5  # share of the time for merging, at most
PLACES = (8, 24)  # places of a unit, at least and at most
LONGEST = {True: 40, False: 100}  # words in training, where every step has a label or only the last
EXTRACTED = 5_000  # states that are read from a network, at most
WORDS, LENGTH = 2_000, 30  # random words on which a machine is compared with a teacher, and their length


class NothingLearnt(RuntimeError):
    """No method came to a machine in the time allowed."""


def learn(
    sequences: Iterable[Sequence[Name]] | None = None,
    labels: Iterable[Any] | None = None,
    *,
    teacher: Teacher | None = None,
    alphabet: Iterable[Name] | None = None,
    outputs: Iterable[Name] | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    held_out: float = 0.2,
    method: Literal["both", "merging", "network"] = "both",
    watch: Callable[[str], None] | None = None,
) -> Learned:
    """Learn a machine from labelled sequences, and compile it to a network that is proved to be that machine.

    sequences: of symbols, which may be any values that can be hashed. labels: one for each sequence, or a list for each
    sequence with one label a step, None where a step has no label. alphabet, outputs: all symbols and labels, in an
    order of your choice; by default those that occur, sorted.
    teacher: instead of sequences, a function that gives the label of a tuple of symbols; needs alphabet.
    seconds: about how long it may take. held_out: the share of the traces that only measures the result. method:
    "merging" merges the states of a tree of traces, "network" trains a network, and "both" chooses between them by
    traces that they have not seen. watch: called with a line of text whenever something new is tried.
    Labels may be wrong in part: a machine is chosen that contradicts some traces and does better on others.

    >>> found = learn(["ab", "abab", "aba", "b", "ba", "aab", "a", "abb", "ababab", "bb"] * 3,
    ...               [1, 1, 0, 0, 0, 0, 0, 0, 1, 0] * 3, method="merging")
    >>> found.predict("abababab"), found.predict("abba")
    (1, 0)
    """
    watch = watch or (lambda text: None)
    if not (isinstance(seconds, (int, float)) and isfinite(seconds) and seconds > 0):
        raise ValueError(f"seconds must be positive and finite; got {seconds!r}")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0; got {seed!r}")
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out must be at least 0 and less than 1; got {held_out}")
    if method not in ("both", "merging", "network"):
        raise ValueError(f"method must be 'both', 'merging' or 'network'; got {method!r}")
    if teacher is not None:
        if sequences is not None or labels is not None or alphabet is None:
            raise ValueError("teacher must come with alphabet, and without sequences and labels")
        return _from_teacher(teacher, tuple(alphabet), None if outputs is None else tuple(outputs), seed, watch)
    if sequences is None or labels is None:
        raise ValueError("sequences and labels must both be given, or teacher and alphabet")
    names, traces = read(sequences, labels, alphabet, outputs)
    return _from_traces(names, traces, seconds, seed, held_out, method, watch)


def _from_traces(
    names: Names, traces: Traces, seconds: float, seed: int, share: float, method: str, watch: Callable[[str], None]
) -> Learned:
    began, random = time.monotonic(), numpy.random.default_rng(seed)
    known, unseen = traces, None
    if share > 0 and len(traces) >= FEW:
        known, unseen = split(traces, share, random)
    trials, network, merged, trained = list[Trial](), None, None, None
    if method != "network":
        until = began + seconds * (1.0 if method == "merging" else MERGING)
        trials = merge_by_cross_validation(known, len(names.symbols), names.undecided, until, random, watch)
        merged = next((each for each in trials if each.machine is not None), None)
    if method != "merging":
        left = max(seconds - (time.monotonic() - began), 1.0)
        trained, network = _train(names, known, merged, left, seed, random, watch)
        trials.append(trained)
    best = rank(trials)[0]
    if best.machine is None:
        raise NothingLearnt(f"nothing was learnt in {seconds:g} seconds: {best.note}; allow more seconds")
    machine = best.machine
    watch(f"compiling and certifying {states_decided(machine, names.undecided)} states")
    model, certificate = compile_and_certify(machine)
    everywhere, contradicted = score(machine, traces)
    return Learned(
        machine,
        model,
        names,
        certificate,
        traces.per_step,
        len(traces),
        None if unseen is None else score(machine, unseen)[0],
        tuple(contradicted),
        1 - everywhere.accuracy,
        _disagreements(
            names, *(each for each in (merged, trained) if each is not None and each in as_good_as_the_best(trials))
        ),
        tuple(_entry(each, each is best, names) for each in trials),
        network=network if best is trained else None,
    )


def _train(
    names: Names,
    known: Traces,
    merged: Trial | None,
    seconds: float,
    seed: int,
    random: numpy.random.Generator,
    watch: Callable[[str], None],
) -> tuple[Trial, MinMaxRNC_LM | None]:
    """Train a network on most of the traces, read its machine, and score it on the others."""
    began = time.monotonic()
    fit, other = split(known, 0.25, random) if len(known) > 1 else (known, known)
    symbols, size = len(names.symbols), max(len(names.symbols), names.undecided + 1, 2)
    task = TraceTask(fit, size)
    states = PLACES[0] if merged is None or merged.machine is None else merged.machine.n_states
    right = 1.0 if merged is None or merged.score is None else merged.score.accuracy
    curriculum = LengthCurriculum(
        threshold=min(0.98, max(0.5, right - 0.01)),
        longest=min(LONGEST[known.per_step], task.longest),
        shortest=min(2, task.longest),
    )
    plan = NetworkPlan(
        degree=min(max(states + SPARE, PLACES[0]), PLACES[1]), units=16, curriculum=curriculum, patience=400
    )
    trained = train_network(task, plan, seconds=0.7 * seconds, seed=seed, watch=watch)
    how = f"network of {plan.units} units of degree {plan.degree}, {trained.steps} steps"
    tokens, targets = task.sample("train", 1, 512, curriculum.longest)
    smaller = prune(trained.model, tokens, targets)
    watch("reading the machine from the network")
    note = f"learnt; {trained.restarts} restarts" if trained.learnt else f"came to length {trained.length}"
    try:
        machine = only_seen(extract(smaller, EXTRACTED, symbols=symbols).minimise(), fit, names.undecided)
    except StateExplosion:
        try:
            machine, note = _distil(trained.model, fit, names, began + seconds), note + "; by merging its answers"
        except GaveUp as error:
            return Trial(how, None, None, time.monotonic() - began, f"{note}; {error}"), None
    result = certify(smaller, machine, no_answer=names.undecided, max_states=EXTRACTED * 4)
    if isinstance(result, Proof):
        note += "; the trained network is proved to be this machine"
    return Trial(how, machine, score(machine, other)[0], time.monotonic() - began, note), smaller


def _distil(model: MinMaxRNC_LM, traces: Traces, names: Names, deadline: float) -> Machine:
    """The machine that merging finds where the network's answers stand in place of the labels."""
    import torch

    answers: list[numpy.ndarray] = [numpy.empty(0)] * len(traces)
    for places, tokens, targets in traces.batches():
        with torch.no_grad():
            said = model(torch.from_numpy(tokens))[0][..., : names.undecided].argmax(-1).numpy()
        for row, place in enumerate(places):
            length = len(traces.tokens[place])
            answers[place] = numpy.where(targets[row, :length] == IGNORE, IGNORE, said[row, :length])
    relabelled = Traces(traces.tokens, answers, traces.per_step)
    return merge(relabelled, len(names.symbols), names.undecided, Merging(noise=0.02), deadline)


def _disagreements(names: Names, *trials: Trial) -> tuple[dict[str, Any], ...]:
    """Words on which what merging found and what training found differ, if unseen traces do not say which is right."""
    machines = [each.machine for each in trials if each.machine is not None]
    if len(machines) < 2:
        return ()
    one, other = machines
    return tuple(
        {
            "word": tuple(names.symbols[each] for each in word),
            "merging": names.output(int(one.run([word])[0, -1])),
            "network": names.output(int(other.run([word])[0, -1])),
        }
        for word in differences(one, other, names.undecided)
    )


def _entry(trial: Trial, chosen: bool, names: Names) -> dict[str, Any]:
    found = trial.score
    return {
        "tried": trial.how,
        "states": None if trial.machine is None else states_decided(trial.machine, names.undecided),
        "labels right on unseen traces": None if found is None or not found.asked else f"{found.accuracy:.2%}",
        "seconds": round(trial.seconds, 2),
        "note": trial.note,
        "chosen": chosen,
    }


def _from_teacher(
    teacher: Teacher,
    symbols: tuple[Name, ...],
    outputs: tuple[Name, ...] | None,
    seed: int,
    watch: Callable[[str], None],
) -> Learned:
    if not symbols or len(set(symbols)) < len(symbols):
        raise ValueError(f"alphabet must hold at least one symbol, and each once; got {symbols!r:.200}")
    watch("asking the teacher")
    names, machine, questions, seconds = ask(teacher, symbols, outputs, words=WORDS, length=LENGTH, seed=seed)
    model, certificate = compile_and_certify(machine)
    right, worst = compare(teacher, names, machine, words=WORDS, length=2 * LENGTH, seed=seed)
    note = "" if worst is None else f"wrong after {' '.join(str(symbols[each]) for each in worst)}"
    entry = {"tried": "L*", "states": machine.n_states, "seconds": round(seconds, 2), "note": note, "chosen": True}
    held_out = Score(right, WORDS, right, WORDS)
    return Learned(machine, model, names, certificate, False, questions, held_out, log=(entry,), source="teacher")
