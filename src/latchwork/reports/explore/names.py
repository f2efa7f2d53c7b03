"""What the tokens of a task are called on the page."""

from __future__ import annotations

from latchwork.tasks import Task
from latchwork.tasks.flip_flop import FlipFlop
from latchwork.tasks.groups import WordProblem
from latchwork.tasks.induction_heads import InductionHeads
from latchwork.tasks.last_step import LastStep
from latchwork.tasks.regular import Regular
from latchwork.tasks.sequences import KINDS, OTHERS, TOKENS, Sequences


def token_names(task: Task) -> tuple[list[str], list[str]]:
    """The names of the tokens as they are read, and as they are answered: one for each of the vocabulary.

    >>> from latchwork.tasks import make_task
    >>> token_names(make_task("fflm(0.8)"))[0]
    ['0', '1', 'w', 'r', 'i']
    >>> token_names(make_task("word_problem(S3)"))[1][:3]
    ['012', '021', '102']
    >>> token_names(make_task("regular((ab)*)"))
    (['a', 'b'], ['no', 'yes'])
    """
    numbers = [str(token) for token in range(task.vocabulary)]
    if isinstance(task, LastStep):
        return token_names(task.task)
    if isinstance(task, FlipFlop):
        return [*"01wri"], numbers
    if isinstance(task, InductionHeads):
        return _filled([*numbers[: task.n], "?", "pad"], numbers), numbers
    if isinstance(task, WordProblem):
        elements = ["".join(map(str, each)) for each in task.elements]
        return _filled([elements[each] for each in task.letters], numbers), _filled(elements, numbers)
    if isinstance(task, Sequences):
        names = _sequences(task)
        return names, names
    if isinstance(task, Regular):
        return _filled([*task.alphabet], numbers), _filled(["no", "yes"], numbers)
    return numbers, numbers


def _filled(names: list[str], numbers: list[str]) -> list[str]:
    """The names, and beyond them numbers."""
    return names + numbers[len(names) :]


def _sequences(task: Sequences) -> list[str]:
    """A1 and A1' are event 1 of sequence A, A- and A-' its reset; then what is irrelevant; then the answers."""
    kinds = "ABCDEFGH"[:KINDS]
    marks = ["'" * twin for twin in range(TOKENS)]
    events = [f"{kind}{event + 1}{mark}" for kind in kinds for event in range(task.n) for mark in marks]
    resets = [f"{kind}-{mark}" for kind in kinds for mark in marks]
    answers = ["+".join(kind for place, kind in enumerate(kinds) if number >> place & 1) for number in range(2**KINDS)]
    return [*events, *resets, *(f"x{number}" for number in range(OTHERS)), *(each or "none" for each in answers)]
