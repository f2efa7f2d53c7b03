"""Rows of levels and numbers as keys of a dictionary."""

from __future__ import annotations

from typing import Any

import numpy

Array = numpy.ndarray


def distinct(levels: int, x: Array, numbers: Array, most: int = 1 << 31) -> tuple[list[Any], Array, Array]:
    """Keys of the distinct rows of states and numbers below most, where each stands first, and which each row has.

    A key is one integer where that is wide enough, else bytes: the same kind for all rows of one walk.
    """
    if levels ** x.shape[1] * most < 1 << 63:
        flat = numbers * levels ** x.shape[1] + x.astype(numpy.int64) @ levels ** numpy.arange(x.shape[1])
    else:
        number = numpy.ascontiguousarray(numbers, numpy.int64).view(numpy.uint8).reshape(-1, 8)
        joined = numpy.ascontiguousarray(numpy.concatenate([x, number], 1))
        flat = joined.view(f"V{joined.shape[1]}").ravel()
    keys, first, places = numpy.unique(flat, return_index=True, return_inverse=True)
    return keys.tolist(), first, places
