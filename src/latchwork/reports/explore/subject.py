"""What a page can show: a network with its task, or a regular expression with the network compiled from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from latchwork import zoo
from latchwork.automata import Counterexample, Machine, Proof, StateExplosion, Unknown, certify, compile, extract
from latchwork.machines.words import leads_to, random_words
from latchwork.models import MinMaxRNC_LM
from latchwork.modules.state import State
from latchwork.reports.explore.names import token_names
from latchwork.reports.explore.weights import network_data, numbers
from latchwork.tasks import Task, make_task

Data = dict[str, Any]
MOST_STATES = 2_000  # of a machine in a page, and of one that is extracted for it
CERTIFY_STATES = 50_000  # that a search for a mistake may take: a few seconds
CHECKED = 4, 32  # words, and steps of each, that the page compares with PyTorch


def zoo_subject(name: str) -> Data:
    """A network of the zoo with its task, its proof, and the words that its training got wrong on the way."""
    proof = zoo.proof(name)
    words = [
        {"tokens": round["word"], "why": "wrong during training"} for round in proof["rounds"] if round.get("word")
    ]
    verdict = (
        f"Proved right on every word of {proof['task']}, of any length, in {proof['precision']}: "
        f"{proof['states']:,} pairs of states walked through, margin {proof['margin']:.2g}."
    )
    data = _subject(zoo.load(name), make_task(proof["task"]), name)
    return {**data, "verdict": {"kind": "proved", "text": verdict}, "words": words}


def network_subject(model: MinMaxRNC_LM, name: str, task: Task | None = None) -> Data:
    """A network, and where its task is given a proof that it is right, or a word on which it is wrong."""
    data = _subject(model, task, name)
    machine = None if task is None else _task_machine(task)
    if task is not None and machine is not None:
        result = certify(model, machine, no_answer=task.vocabulary, max_states=CERTIFY_STATES)
        if isinstance(result, Unknown) and task.vocabulary not in machine.outputs:
            data["verdict"], data["words"] = _compared(model, machine, task.name, result)
        else:
            data["verdict"], data["words"] = _verdict(result, task.name)
    return data


def regex_subject(pattern: str, alphabet: str | None = None) -> Data:
    """The network that is compiled from a regular expression, beside the expression's machine."""
    from latchwork.tasks import Regular

    task = Regular(pattern, alphabet)
    machine = Machine.from_regex(pattern, task.alphabet)
    return network_subject(compile(machine), pattern, task)


def _subject(model: MinMaxRNC_LM, task: Task | None, name: str) -> Data:
    model = model.eval()
    machine, whose = (None if task is None else _task_machine(task)), "task"
    if task is None:
        machine, whose = _extracted(model), "network"
    plain = [str(token) for token in range(model.vocab_size)]
    symbols, answers = (plain, plain) if task is None else token_names(task)
    n_symbols = model.vocab_size if machine is None else machine.n_symbols
    if n_symbols > model.vocab_size:
        raise ValueError(f"the task {name!r} has {n_symbols} tokens, the network {model.vocab_size}")
    shape = model.config.resolved_backbone
    return {
        "name": name,
        "task": None if task is None else task.name,
        "about": f"{_count(shape.n_layers, 'layer')} of {_count(shape.state_width, 'state scalar')}, "
        f"{_count(model.parameter_count(), 'parameter')}",
        "verdict": None,
        "words": [],
        "symbols": symbols[:n_symbols],
        "answers": answers + plain[len(answers) :],
        "machine": _machine_data(machine, None if task is None else task.vocabulary),
        "whose": whose,
        "network": network_data(model),
        "check": _check(model, machine, task, n_symbols),
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _task_machine(task: Task) -> Machine | None:
    """The machine of a task, or None where it has none."""
    try:
        return Machine.from_task(task)
    except ValueError:
        return None


def _extracted(model: MinMaxRNC_LM) -> Machine | None:
    """What the network is, or None where it has too many states."""
    try:
        return extract(model, MOST_STATES).minimise()
    except StateExplosion:
        return None


def _machine_data(machine: Machine | None, no_answer: int | None) -> Data | None:
    if machine is None or machine.n_states > MOST_STATES:
        return None
    return {
        "transitions": machine.transitions.tolist(),
        "outputs": machine.outputs.tolist(),
        "start": machine.start,
        "noAnswer": no_answer if no_answer in machine.outputs else None,  # it is asked for at every step
    }


def _compared(model: MinMaxRNC_LM, machine: Machine, task: str, unknown: Unknown) -> tuple[Data, list[Data]]:
    """Where there is no proof for every order of sums: walk through all states of one way to compute the network."""
    try:
        network = extract(model, MOST_STATES, symbols=machine.n_symbols)
    except StateExplosion:
        return _verdict(unknown, task)
    word = network.equivalent(machine)
    if word is not None:
        return _verdict(Counterexample(word, 0, 0, network.n_states, 0.0), task)
    states = _count(network.n_states, "state")
    text = f"Right on every word of {task}, of any length, with sums in one order: all {states} were walked through."
    return {"kind": "proved", "text": text}, []


def _verdict(result: Proof | Counterexample | Unknown, task: str) -> tuple[Data, list[Data]]:
    if isinstance(result, Proof):
        text = f"Proved right on every word of {task}, of any length, in {result.precision}."
        return {"kind": "proved", "text": text}, []
    if isinstance(result, Counterexample):
        text = f"Wrong: {_count(len(result.word), 'step')} are enough. Replay the counterexample."
        return {"kind": "wrong", "text": text}, [{"tokens": list(result.word), "why": "counterexample"}]
    return {"kind": "unknown", "text": f"Neither proved nor refuted: {result.reason}."}, []


def _check(model: MinMaxRNC_LM, machine: Machine | None, task: Task | None, symbols: int) -> Data:
    """Words with PyTorch's answers and states at every step, which the page compares its own with when it is opened."""
    rows, steps = CHECKED
    random = numpy.random.default_rng(0)
    if machine is None:
        words = random.integers(0, symbols, CHECKED)
    else:
        asked = machine.outputs != (-1 if task is None else task.vocabulary)
        live = leads_to(machine.transitions, asked)
        words = random_words(machine, live, random, numpy.full((rows, steps), -1))[0]
    answers, states = run(model, words.tolist())
    return {"words": words.tolist(), "answers": answers, "states": numbers(states)}


def run(model: MinMaxRNC_LM, words: Sequence[Sequence[int]]) -> tuple[list[list[int]], torch.Tensor]:
    """PyTorch's answer at every step of words of one length, and the states (words, steps, layers, d_state)."""
    tokens, state = torch.tensor(words), None
    answers, states = [], []
    with torch.no_grad():
        for step in range(tokens.shape[1]):
            logits, after = model(tokens[:, step : step + 1], state)
            state = State(*after)
            answers.append(logits[:, 0].argmax(-1))
            states.append(state.x.movedim(0, 1))
    return torch.stack(answers, 1).tolist(), torch.stack(states, 1)
