"""A formula over truth values as a machine: LTL on finite words, past and future mixed. No torch here.

The state of the machine is a set of claims. A claim says what the variables of temporal/core.py, the parts of the
formula that are read a step ahead, will be; it stands with what is remembered of the step before. Reading a symbol, a
claim is kept with every claim about the next step that makes it come true. The word is in the language if the claim
that nothing comes any more is among those kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from latchwork.temporal.core import Bits, Core, TooLarge
from latchwork.temporal.formula import COMPARISONS, TERMS, Formula

Claim = tuple[Bits, Bits]  # what is remembered, and what the variables will be
MOST_STATES = 100_000
MOST_ATOMS = 12
MOST_VALUES = 20_000_000  # of equations that are computed: some ten seconds


def tables(formula: Formula, symbols: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Transitions and outputs, (states, symbols) each: output 1 where the formula holds.

    A formula without future operators is asked at each step, at the step itself. One with future operators is asked at
    the first step, of the word read so far.
    Without `symbols` the atoms are booleans, in the order of `atoms(formula)`, and symbol i has those true whose bits
    are 1 in i, the first atom's bit being the lowest. With symbols, token i is symbols[i], and the atom of that name is
    true there and no other.
    """
    names = atoms(formula)
    letters = _letters(names, symbols)
    core = Core(formula, lambda node: node.operator in ("signal", "constant"))
    corners = core.corners()
    reader = _Reader(core, corners)
    start: Any = None  # before the first step
    number: dict[Any, int] = {start: 0}
    states, rows, outputs = [start], [], []
    for state in states:
        row, output = [], []
        for letter in letters:
            after, holds = reader.read(state, letter)
            if after not in number:
                number[after] = len(states)
                states.append(after)
                if len(states) > MOST_STATES:
                    raise TooLarge(f"the machine of the formula has more than {MOST_STATES:,} states")
            if reader.computed > MOST_VALUES:
                raise TooLarge(f"the machine of the formula has {len(states):,} states and more: narrow its bounds")
            row.append(number[after])
            output.append(int(holds))
        rows.append(row)
        outputs.append(output)
    return numpy.array(rows), numpy.array(outputs)


def atoms(formula: Formula) -> tuple[str, ...]:
    """The names of the atoms, sorted; an error if the formula speaks of numbers."""
    for node in reversed(formula.nodes()):
        truth = node.operator == "signal" or (node.operator == "constant" and math.isinf(float(node.value or 0)))
        if node.operator in (*COMPARISONS, *TERMS) and not truth:
            raise ValueError(f"the formula must be over truth values, without numbers; it has {node}")
    return tuple(sorted(formula.names))


def symbol_names(formula: Formula, symbols: Sequence[str] | None = None) -> tuple[str, ...]:
    """The name of each symbol of `tables`: as given, or the atoms that are true there, or "none"."""
    names = atoms(formula)
    if symbols is not None:
        return tuple(symbols)
    return tuple(
        " & ".join(name for k, name in enumerate(names) if i >> k & 1) or "none" for i in range(2 ** len(names))
    )


def _letters(names: tuple[str, ...], symbols: Sequence[str] | None) -> list[dict[str, bool]]:
    if symbols is None:
        if len(names) > MOST_ATOMS:
            raise ValueError(f"a formula over booleans may have at most {MOST_ATOMS} atoms; got {len(names)}")
        return [{name: bool(i >> k & 1) for k, name in enumerate(names)} for i in range(2 ** len(names))]
    symbols = list(symbols)
    if len(set(symbols)) != len(symbols) or not symbols:
        raise ValueError(f"symbols must be different names, at least one; got {symbols}")
    if unknown := [name for name in names if name not in symbols]:
        raise ValueError(f"the formula speaks of {', '.join(unknown)}; the symbols are {', '.join(symbols)}")
    return [{name: name == symbol for name in symbols} for symbol in symbols]


class _Reader:
    def __init__(self, core: Core, corners: list[Bits]) -> None:
        self.core, self.corners = core, corners
        self.end = tuple(outside for _, outside in core.variables)
        self.begin = tuple(outside for _, outside in core.memories)
        self.computed = 0  # values of equations so far
        self._ahead = {variable: place for place, variable in enumerate(core.variables)}
        self._ago = {memory: place for place, memory in enumerate(core.memories)}
        self._known: dict[Any, dict[Bits, list[tuple[Claim, bool]]]] = {}

    def read(self, state: frozenset[Claim] | None, letter: dict[str, bool]) -> tuple[frozenset[Claim], bool]:
        """The state after a symbol, and whether the formula holds."""
        if state is None:
            made = [each for claims in self._step(letter, self.begin).values() for each in claims]
        else:
            made = [each for memory, claim in state for each in self._step(letter, memory).get(claim, ())]
        if not self.core.variables:
            return frozenset(claim for claim, _ in made), made[0][1]
        after = frozenset(claim for claim, holds in made if holds or state is not None)
        return after, any(claim == self.end for _, claim in after)

    def _step(self, letter: dict[str, bool], memory: Bits) -> dict[Bits, list[tuple[Claim, bool]]]:
        """What was claimed of this step -> the claims of the next one that make it true, and whether the root holds."""
        key = (tuple(letter.values()), memory)
        if key not in self._known:
            found: dict[Bits, list[tuple[Claim, bool]]] = {}
            for corner in self.corners:
                values = self._values(letter, memory, corner)
                claimed = tuple(values[read] for read, _ in self.core.variables)
                kept = tuple(values[read] for read, _ in self.core.memories)
                found.setdefault(claimed, []).append(((kept, corner), values[self.core.root]))
            self._known[key] = found
        return self._known[key]

    def _values(self, letter: dict[str, bool], memory: Bits, corner: Bits) -> dict[int, bool]:
        core, values = self.core, dict[int, bool]()
        self.computed += len(core.order)
        for k in core.order:
            node = core.nodes[k]
            if node.kind == "leaf":
                values[k] = _truth(core.leaves[node.a], letter)
            elif node.kind == "next":
                values[k] = corner[self._ahead[node.a, node.outside]]
            elif node.kind == "prev":
                values[k] = memory[self._ago[node.a, node.outside]]
            elif node.kind == "and":
                values[k] = values[node.a] and values[node.b]
            else:
                values[k] = values[node.a] or values[node.b]
        return values


def _truth(leaf: Formula, letter: dict[str, bool]) -> bool:
    if leaf.operator == "not":
        return not _truth(leaf.children[0], letter)
    return letter[str(leaf.value)] if leaf.operator == "signal" else float(leaf.value or 0) > 0
