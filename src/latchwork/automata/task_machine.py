"""A task as a machine: the tables of transitions and outputs, and the start."""

from __future__ import annotations

import numpy

from latchwork.tasks import IGNORE, Automaton, FlipFlop, InductionHeads, Latching, Sequences, Task
from latchwork.tasks.flip_flop import READ, SKIP, WRITE
from latchwork.tasks.sequences import KINDS
from latchwork.tasks.task import check_table

Array = numpy.ndarray
Tables = tuple[Array, Array, int]  # (states, symbols) each, and the start
NEVER = -1  # a token that may not come here


def tables(task: Task) -> Tables:
    """The tables of the task's machine. Where no answer is asked for the output is `task.vocabulary`.

    A token that may not come leads to a state of its own, which is never left and where no answer is asked for.
    """
    if isinstance(task, Automaton):
        found = task.successor, task.output[task.successor], task.start
    elif isinstance(task, Sequences):
        found = _sequences(task)
    elif isinstance(task, Latching):
        found = _latching(task)
    elif isinstance(task, FlipFlop):
        found = _flip_flop()
    elif isinstance(task, InductionHeads):
        found = _induction_heads(task)
    else:
        raise ValueError(
            f"task must be an Automaton, Sequences, Latching, FlipFlop or InductionHeads; got {type(task).__name__}"
        )
    transitions, outputs, start = found
    never = transitions == NEVER
    outputs = numpy.where(never | (outputs == IGNORE), task.vocabulary, outputs)
    if never.any():
        states, symbols = transitions.shape
        transitions = numpy.vstack([numpy.where(never, states, transitions), numpy.full((1, symbols), states)])
        outputs = numpy.vstack([outputs, numpy.full((1, symbols), task.vocabulary)])
    return transitions, outputs, start


def _sequences(task: Sequences) -> Tables:
    """The answers are tokens too, but never come."""
    check_table(task.name, (task.events + 1) ** KINDS, task.vocabulary)
    successor, answer = task.automaton()
    successor = successor[:, : task.answers]
    return successor, answer.astype(int)[successor], 0


def _latching(task: Latching) -> Tables:
    """State 0 is the start, k + 1 holds token k."""
    check_table(task.name, task.n + 1, task.vocabulary)
    held = numpy.arange(1, task.n + 1)
    transitions = numpy.full((task.n + 1, task.vocabulary), NEVER)
    transitions[0, : task.n] = held
    transitions[1:, task.n if task.distractors == "others" else 0 :] = held[:, None]
    return transitions, transitions - 1, 0


def _flip_flop() -> Tables:
    """The start, "a bit to write", and for each bit held: "an instruction", "the bit itself", "any bit"."""
    start, to_write, instruction, read, skipped = 0, 1, (2, 3), (4, 5), (6, 7)
    transitions, outputs = numpy.full((8, 5), NEVER), numpy.full((8, 5), IGNORE)
    transitions[start, WRITE] = to_write
    for bit in (0, 1):
        transitions[to_write, bit] = instruction[bit]
        transitions[instruction[bit], [WRITE, READ, SKIP]] = to_write, read[bit], skipped[bit]
        outputs[instruction[bit], READ] = bit
        transitions[read[bit], bit] = instruction[bit]
        transitions[skipped[bit], [0, 1]] = instruction[bit]
    return transitions, outputs, start


def _induction_heads(task: InductionHeads) -> Tables:
    """Before the first recall, just after it, k + 2 holds token k, and the end."""
    n, recall = task.n, task.recall
    check_table(task.name, n + 3, task.vocabulary)
    held = numpy.arange(2, n + 2)
    transitions, outputs = numpy.full((n + 3, task.vocabulary), NEVER), numpy.full((n + 3, task.vocabulary), IGNORE)
    transitions[0, :n], transitions[0, recall] = 0, 1
    transitions[1, :n] = held
    transitions[2:-1, :n], transitions[2:-1, recall] = held[:, None], n + 2
    outputs[2:-1, recall] = numpy.arange(n)
    return transitions, outputs, 0
