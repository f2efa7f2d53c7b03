"""Tasks by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches

from latchwork.tasks.flip_flop import FlipFlop
from latchwork.tasks.groups import CycleNavigation, Cyclic, Parity, Transformations, WordProblem
from latchwork.tasks.induction_heads import InductionHeads
from latchwork.tasks.last_step import LastStep
from latchwork.tasks.latching import Latching
from latchwork.tasks.modular_arithmetic import ModularArithmetic
from latchwork.tasks.regular import EvenPairs, Regular, Tomita
from latchwork.tasks.sequences import Sequences
from latchwork.tasks.task import Task

TASKS: dict[str, Callable[..., Task]] = {
    "latching": Latching,
    "sequences": Sequences,
    "induction_heads": InductionHeads,
    "fflm": FlipFlop,
    "parity": Parity,
    "cyclic": Cyclic,
    "word_problem": WordProblem,
    "transformations": Transformations,
    "last_step": LastStep,
    "even_pairs": EvenPairs,
    "cycle_navigation": CycleNavigation,
    "modular_arithmetic": ModularArithmetic,
    "tomita": Tomita,
    "regular": Regular,
}
NAME = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*")
COMMA = re.compile(r",(?!\d*\})")  # not that of {m,n} in a regular expression


def make_task(text: str) -> Task:
    """A task by its name and its constructor's arguments in order, as in the task's own `name`.

    >>> make_task("latching(4, all)").vocabulary
    20
    >>> make_task("sequences(3)").name
    'sequences(3, defined)'
    >>> make_task("last_step(word_problem(S5, swaps))").name
    'last_step(word_problem(S5, swaps))'
    """
    match = NAME.fullmatch(text)
    name = match[1] if match else text
    if match is None or name not in TASKS:
        near = get_close_matches(name, TASKS, n=3, cutoff=0.4) or TASKS
        raise ValueError(f"no task {text!r}; did you mean {', '.join(near)}?")
    constructor = TASKS[name]
    parameters = [each for each in inspect.signature(constructor).parameters.values() if each.kind != each.KEYWORD_ONLY]
    inside = match[2] or ""
    pieces = COMMA.split(inside) if len(parameters) != 1 else [inside]  # a task in a task has commas of its own
    words = [piece.strip() for piece in pieces if inside]
    if not sum(each.default is each.empty for each in parameters) <= len(words) <= len(parameters):
        usage = ", ".join(
            each.name if each.default is each.empty else f"{each.name}={each.default}" for each in parameters
        )
        raise ValueError(f"{name} takes ({usage}); got {text!r}")
    return constructor(*(_read(name, each, word) for each, word in zip(parameters, words, strict=False)))


# By the annotation of an argument; else it is taken as it is.
READERS: dict[str, Callable[[str], int | float | str]] = {"int": int, "float": float}


def _read(name: str, parameter: inspect.Parameter, word: str) -> int | float | str | Task:
    if parameter.annotation == "Task":
        return make_task(word)
    try:
        return READERS.get(parameter.annotation, str)(word)
    except ValueError:
        raise ValueError(f"{parameter.name} of {name} must be {parameter.annotation}; got {word!r}") from None
