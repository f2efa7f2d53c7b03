"""An array that grows."""

from __future__ import annotations

from typing import Any

import numpy

Array = numpy.ndarray


class Rows:
    """Rows of an array that grows."""

    def __init__(self, width: int, kind: Any = numpy.float64) -> None:
        self._array, self._length = numpy.empty((64, width), kind), 0

    def __len__(self) -> int:
        """How many there are."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Of memory, with room for more."""
        return self._array.nbytes

    def add(self, rows: Array) -> None:
        """Some more, after the last."""
        wanted = self._length + len(rows)
        if wanted > len(self._array):
            grown = numpy.empty((max(wanted, 2 * len(self._array)), self._array.shape[1]), self._array.dtype)
            grown[: self._length] = self._array[: self._length]
            self._array = grown
        self._array[self._length : wanted] = rows
        self._length = wanted

    def __getitem__(self, numbers: Array) -> Array:
        """Those at these places."""
        rows: Array = self._array[numbers]
        return rows
