"""Run a finite automaton over many sequences at once."""

from __future__ import annotations

import numpy

from latchwork.tasks.task import Array

SLAB = 1024  # rows run together: what a cache holds


def run(successor: Array, output: Array, state: Array, tokens: Array) -> tuple[Array, Array]:
    """The output of the state after each step, (rows, steps), and the state after the last, (rows,).

    successor: (states, tokens), the state that follows. output: (states,). state: (rows,), before the first step.
    tokens: (rows, steps). All rows take a step together: the wider the batch, the faster.
    """
    letters = successor.shape[1]
    table = (successor * letters).astype(numpy.intp).ravel()  # states are kept times `letters`: one addition a step
    outputs = output[successor].ravel()
    moves = (successor != numpy.arange(len(successor))[:, None]).any(0)  # the other tokens leave every state alone
    answers = numpy.empty(tokens.shape, output.dtype)
    last = numpy.empty_like(state)
    for first in range(0, len(tokens), SLAB):
        rows = slice(first, first + SLAB)
        busy = moves.take(tokens[rows]).any(0)
        index = numpy.ascontiguousarray(tokens[rows, busy].T, dtype=numpy.intp)
        now = state[rows].astype(numpy.intp) * letters
        for here in index:
            here += now
            table.take(here, out=now, mode="clip")
        after = outputs.take(index, mode="clip").T
        if len(index) < len(busy):  # between busy steps the answer stays what it was
            after = numpy.hstack([output[state[rows], None], after]).take(busy.cumsum(), axis=1)
        answers[rows] = after
        last[rows] = now // letters
    return answers, last
