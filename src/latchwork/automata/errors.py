"""The errors of searches that stop before they fill the memory."""

from __future__ import annotations


class DecompositionTooLarge(RuntimeError):
    """A decomposition passed its limit; the message says the size reached and what to do.

    reached: the number of things found when the search stopped.
    """

    def __init__(self, what: str, reached: int, advice: str) -> None:
        super().__init__(f"the decomposition is too large: {reached:,} {what} and no end; {advice}")
        self.reached = reached
