"""Run a machine given by tables over one sequence, until a step whose outcome is not in the tables."""

from __future__ import annotations

import ctypes

import numpy

from latchwork.ops.cpu import kernel

Array = numpy.ndarray


def walk(following: Array, outputs: Array, state: int, tokens: Array, answers: Array) -> tuple[int, int]:
    """The number of steps done, and the state then.

    following, outputs: (states, symbols), contiguous int32; a state below 0 is not known. tokens: (steps,) int64, each
    at least 0 and less than symbols. answers: (steps,) int32, written up to the steps done. In C++ where there is the
    kernel; `walk_by_definition` else.
    """
    if kernel.MISSING is not None or not hasattr(kernel.library(), "latchwork_walk"):
        return walk_by_definition(following, outputs, state, tokens, answers)
    run = kernel.library().latchwork_walk
    run.restype = ctypes.c_int64
    tokens = numpy.ascontiguousarray(tokens, numpy.int64)
    after = ctypes.c_int64(state)
    steps = run(
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
