"""What `certify` finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from latchwork.machines import Machine
from latchwork.markup import element


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
    layer, how many inputs it can see, and how many pairs of them. both_sides: entries of drives that rounding
    may take across a boundary, or to another choice. longest: steps after which nothing new came.
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

    def __str__(self) -> str:
        """What is proved, and the figures of the proof."""
        further = f", or within {self.tolerance:g} of exact" if self.tolerance else ""
        return (
            f"proved: right on all words, of any length, in {self.precision}, whatever the order of its sums{further}. "
            f"{self.states:,} states, margin {self.margin:.3g}; rounding: at most {self.bound:.1e}, seen in float32 "
            f"{self.float32_seen:.1e}; {self.seconds:.1f} s"
        )

    def _repr_html_(self) -> str:
        return _paragraph(str(self))


@dataclass(frozen=True)
class Counterexample:
    """A word after which the network, run in the precision asked for, is wrong: what it said, and should have said.

    machine: the one it was compared with, whose names the text of this uses.
    """

    word: tuple[int, ...]
    said: int
    expected: int
    states: int
    seconds: float
    machine: Machine | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        """The word, what the network says to it, and what it should say."""
        word, said, expected = _in_names(self.machine, self.word, self.said, self.expected)
        return f"wrong: to {word} it says {said}, and should say {expected}"

    def _repr_html_(self) -> str:
        return _paragraph(str(self))


@dataclass(frozen=True)
class Unknown:
    """Neither: why, and how far the search went. word: where it came to an end, if at a word. advice: what to do.

    machine: the one it was compared with, whose names the text of this uses.
    """

    reason: str
    states: int
    seconds: float
    word: tuple[int, ...] | None = None
    advice: str = ""
    machine: Machine | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        """The reason, where the search ended, and what to do."""
        where = "" if self.word is None else f", after {_in_names(self.machine, self.word)[0]}"
        return f"unknown: {self.reason}{where}" + (f"; what to do: {self.advice}" if self.advice else "")

    def _repr_html_(self) -> str:
        return _paragraph(str(self))


Finding = Proof | Counterexample | Unknown


def to_dict(found: Finding) -> dict[str, Any]:
    """Plain values, as JSON takes them; without the machine."""
    plain = found if isinstance(found, Proof) else replace(found, machine=None)
    return {"name": type(found).__name__, **asdict(plain)}


def from_dict(values: Mapping[str, Any], machine: Machine) -> Finding:
    """The inverse of `to_dict`. machine: the one that the network was compared with."""
    kind = {each.__name__: each for each in (Proof, Counterexample, Unknown)}[values["name"]]
    fields: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in values.items()}
    found: Finding = kind(**{key: each for key, each in fields.items() if key != "name"})
    return found if isinstance(found, Proof) else replace(found, machine=machine)


def _in_names(machine: Machine | None, word: tuple[int, ...], *outputs: int) -> list[str]:
    """A word and outputs in the machine's names; as numbers, where it has none."""
    if machine is None:
        return [str(list(word)), *map(str, outputs)]
    named = repr(machine.word(word)) if machine.symbol_names is not None else str(list(word))
    return [named, *map(machine.output, outputs)]


def _paragraph(text: str) -> str:
    verdict, rest = text.split(":", 1)
    return element("p", element("strong", verdict), ":", rest)
