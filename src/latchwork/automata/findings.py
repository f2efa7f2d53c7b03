"""What `certify` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """The network gives the machine's output at every step of every word on which the machine gives one.

    It holds for every run in `precision`, whatever the order of its sums, and for every other whose
    drives and logits are off by at most `tolerance`. bound: how far a drive or logit of such a run may be off by
    rounding, at most. float32_seen: how far those of one run in float32 were off, of every layer at every pair of
    inputs that it can see. margin: the smallest distance between the right logit and the next. states: pairs of states
    of network and machine. inputs, drives: of each layer, how many inputs it can see, and how many pairs of them.
    both_sides: drives that were followed on both sides of a boundary. longest: steps after which nothing new came.
    """

    states: int
    inputs: tuple[int, ...]
    drives: tuple[int, ...]
    both_sides: int
    margin: float
    precision: str
    tolerance: float
    bound: float
    float32_seen: float
    longest: int
    seconds: float


@dataclass(frozen=True)
class Counterexample:
    """A word after which the network, run in float32, is wrong: what it said, and what it should have said."""

    word: tuple[int, ...]
    said: int
    expected: int
    states: int
    seconds: float


@dataclass(frozen=True)
class Unknown:
    """Neither: why, and how far the search went. word: where it came to an end, if at a word."""

    reason: str
    states: int
    seconds: float
    word: tuple[int, ...] | None = None
