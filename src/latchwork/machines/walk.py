"""Run a machine given by tables: over many sequences at once, or over one until a step that the tables do not know."""

from __future__ import annotations

import ctypes
import sys

import numpy

Array = numpy.ndarray
ROWS = 1024  # rows run together: what a cache holds
FEW = 16  # rows that are run faster one after the other


def run(transitions: Array, outputs: Array, state: Array, tokens: Array) -> tuple[Array, Array]:
    """The output at each step, (rows, steps), and the state after the last, (rows,).

    transitions, outputs: (states, symbols). state: (rows,), before the first step. tokens: (rows, steps). Many rows
    take each step together; a few are run one after the other.
    """
    symbols = transitions.shape[1]
    table = (transitions * symbols).astype(numpy.intp).ravel()  # states are kept times the symbols: one addition a step
    found, last = numpy.empty(tokens.shape, outputs.dtype), numpy.empty_like(state)
    if len(tokens) < FEW:
        following = table.tolist()
        for row, word in enumerate(tokens):
            now, places = int(state[row]) * symbols, []
            for token in word.tolist():
                place = now + token
                places.append(place)
                now = following[place]
            found[row], last[row] = outputs.take(numpy.array(places, int)), now // symbols
        return found, last
    for first in range(0, len(tokens), ROWS):
        rows = slice(first, first + ROWS)
        index = numpy.array(tokens[rows].T, numpy.intp, order="C")  # a copy, always: it is written to
        here = state[rows].astype(numpy.intp) * symbols
        for step in index:
            step += here
            table.take(step, out=here, mode="clip")
        found[rows], last[rows] = outputs.take(index, mode="clip").T, here // symbols
    return found, last


def walk(following: Array, outputs: Array, state: int, tokens: Array, answers: Array) -> tuple[int, int]:
    """The number of steps done, and the state then.

    following, outputs: (states, symbols), contiguous int32; a state below 0 is not known. tokens: (steps,) int64, each
    at least 0 and less than symbols. answers: (steps,) int32, written up to the steps done. In C++ where torch and the
    kernel are loaded (the kernel shares torch's threads, and is never loaded without it); `walk_by_definition` else.
    """
    if "torch" not in sys.modules:
        return walk_by_definition(following, outputs, state, tokens, answers)
    from latchwork.ops.cpu import kernel

    if kernel.MISSING is not None or not hasattr(kernel.library(), "latchwork_walk"):
        return walk_by_definition(following, outputs, state, tokens, answers)
    run_tables = kernel.library().latchwork_walk
    run_tables.restype = ctypes.c_int64
    tokens = numpy.ascontiguousarray(tokens, numpy.int64)
    after = ctypes.c_int64(state)
    steps = run_tables(
        *(ctypes.c_void_p(each.ctypes.data) for each in (following, outputs)),
        ctypes.c_int64(following.shape[1]),
        ctypes.c_void_p(tokens.ctypes.data),
        ctypes.c_int64(len(tokens)),
        ctypes.byref(after),
        ctypes.c_void_p(answers.ctypes.data),
    )
    return int(steps), after.value


def walk_by_definition(following: Array, outputs: Array, state: int, tokens: Array, answers: Array) -> tuple[int, int]:
    """The same as a loop."""
    for step, token in enumerate(tokens.tolist()):
        if following[state, token] < 0:
            return step, state
        answers[step] = outputs[state, token]
        state = int(following[state, token])
    return len(tokens), state
