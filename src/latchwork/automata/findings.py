"""What `certify` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """The network gives the machine's output at every step of every word on which the machine gives one.

    It is about the network as its config makes it, with the weights that it had when `certify` was called: every part
    was compared with a fresh one, and every number was finite (automata/as_made.py). After a change to a weight, a
    part, a hook or a class it is another network. The proof holds for every run in `precision`, without dropout,
    whatever the order of its sums, and for every other whose drives and logits are off by at most `tolerance`.

    bound: how far a drive or logit of such a run may be off by rounding, at most. float32_seen: how far those of one
    run in float32 were off, of every layer at every pair of inputs that it can see. margin: the smallest distance
    between the right logit and the next. states: pairs of states of network and machine. inputs, drives: of each
    layer, how many inputs it can see, and how many pairs of them. both_sides: drives that were followed on both sides
    of a boundary. longest: steps after which nothing new came.
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
    """A word after which the network, run in the precision asked for, is wrong: what it said, and should have said."""

    word: tuple[int, ...]
    said: int
    expected: int
    states: int
    seconds: float


@dataclass(frozen=True)
class Unknown:
    """Neither: why, and how far the search went. word: where it came to an end, if at a word. advice: what to do."""

    reason: str
    states: int
    seconds: float
    word: tuple[int, ...] | None = None
    advice: str = ""
