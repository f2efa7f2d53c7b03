"""The validation split: whole documents, or the last part of each."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray


class HeldOut:
    """Decides which part of a document belongs to which split."""

    def __init__(self, documents: int, count: int | None, fraction: float | None, seed: int) -> None:
        self._fraction = fraction
        self._chosen: NDArray[numpy.bool_] = numpy.zeros(documents, bool)
        if fraction is None:
            assert count is not None
            if count >= documents:
                raise ValueError(
                    f"validation_documents must be less than the {documents} documents that there are; got {count}. "
                    "A fraction of each document can be held out instead: validation_fraction"
                )
            # Raw bits of PCG64: numpy may change how it draws numbers from them, not the bits.
            bits = numpy.random.PCG64(seed).random_raw(documents)
            self._chosen[numpy.argsort(bits, kind="stable")[:count]] = True

    def part(self, number: int, text: str, split: str) -> str:
        """The part of a document that is in the split: all of it, some of it, or an empty text."""
        if self._fraction is None:
            return text if self._chosen[number] == (split == "validation") else ""
        cut = int(len(text) * (1 - self._fraction))
        return text[cut:] if split == "validation" else text[:cut]
