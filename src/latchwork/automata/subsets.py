"""The graph of subsets: which sets of states are images of the whole under words, and how words move them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy

from latchwork.automata.errors import DecompositionTooLarge
from latchwork.machines.machine import Machine

MAX_SETS = 50_000
FEW = 128  # states
MAX_BITS = 1 << 31  # of all sets together, one for each state
ADVICE = (
    "minimise the machine, allow more by max_sets, or do without the decomposition: one unit with a state for each of "
    "the machine's needs none"
)
Permutation = tuple[int, ...]  # point i goes to permutation[i]


@dataclass(frozen=True)
class Subsets:
    """The sets X.w of the states that the words w lead to from all states X at once.

    sets: as numbers, in which bit s is set for state s; the first is X. successor: for each set, its image under each
    symbol, as a place in `sets`. transitions: for each state, its successors.
    """

    sets: list[int]
    successor: list[list[int]]
    transitions: list[list[int]]

    @cached_property
    def components(self) -> list[list[int]]:
        """The sets that words lead to and back from, together; each component after those that it leads to."""
        return strong_components(self.successor)

    def maps(self, component: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """For each set of a component, where the states of its first set go on a way to it, in increasing order."""
        inside, first = set(component), component[0]
        found = {first: members(self.sets[first])}
        for here in (queue := [first]):
            for symbol, following in enumerate(self.successor[here]):
                if following in inside and following not in found:
                    found[following] = tuple(self.transitions[state][symbol] for state in found[here])
                    queue.append(following)
        return found

    def generators(self, component: Sequence[int]) -> set[Permutation]:
        """What the words that leave a component's first set alone do to its states: generators, but for the identity.

        They permute the places of the states in increasing order. By Schreier's lemma the edges of the component are
        enough, each between the ways to its ends.
        """
        maps = self.maps(component)
        found = set()
        for here, way in maps.items():
            for symbol, following in enumerate(self.successor[here]):
                if following in maps:
                    place = {state: k for k, state in enumerate(maps[following])}
                    found.add(tuple(place[self.transitions[state][symbol]] for state in way))
        return found - {tuple(range(len(maps[component[0]])))}


def subsets(machine: Machine, max_sets: int = MAX_SETS, *, singletons: bool = False) -> Subsets:
    """The graph of subsets of a machine, all of whose states count; with all sets of a single state, if asked for."""
    if max_sets < 1:
        raise ValueError(f"max_sets must be at least 1; got {max_sets}")
    limit = min(max_sets, MAX_BITS // machine.n_states)
    columns, column_of = numpy.unique(machine.transitions, axis=1, return_inverse=True)  # many symbols act alike
    images = [_Image(column) for column in columns.T]
    sets = [(1 << machine.n_states) - 1]
    if singletons:
        sets += [1 << state for state in range(machine.n_states) if machine.n_states > 1]
    number = {each: k for k, each in enumerate(sets)}
    successor: list[list[int]] = []
    for here in sets:
        row = []
        for image in images:
            following = image(here)
            if following not in number:
                number[following] = len(sets)
                sets.append(following)
            row.append(number[following])
        if len(sets) > limit:
            raise DecompositionTooLarge("sets of states", len(sets), ADVICE)
        successor.append([row[column] for column in column_of.ravel().tolist()])
    return Subsets(sets, successor, machine.transitions.tolist())


def members(mask: int) -> tuple[int, ...]:
    """The states of a set, in increasing order.

    >>> members(0b1101)
    (0, 2, 3)
    """
    return tuple(k for k in range(mask.bit_length()) if mask >> k & 1)


def strong_components(successor: Sequence[Sequence[int]]) -> list[list[int]]:
    """Tarjan's strongly connected components of a graph, each in increasing order and after those that it leads to.

    >>> strong_components([[1], [0, 2], [2]])
    [[2], [0, 1]]
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in range(len(successor)):
        if root in index:
            continue
        path: list[tuple[int, Iterator[int]]] = []
        entering: int | None = root
        while entering is not None or path:
            if entering is not None:
                index[entering] = low[entering] = len(index)
                stack.append(entering)
                on_stack.add(entering)
                path.append((entering, iter(successor[entering])))
                entering = None
            here, following = path[-1]
            for after in following:
                if after not in index:
                    entering = after
                    break
                if after in on_stack:
                    low[here] = min(low[here], index[after])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[here])
                if low[here] == index[here]:
                    component: list[int] = []
                    while not component or component[-1] != here:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    found.append(sorted(component))
    return found


class _Image:
    """The image of a set under a symbol: for few states by tables, eight states at a time, else by an array."""

    def __init__(self, action: numpy.ndarray) -> None:
        self.action = action
        self.tables: list[list[int]] = []
        if len(action) <= FEW:
            for first in range(0, len(action), 8):
                table = [0]
                for state in action[first : first + 8].tolist():
                    table += [image | 1 << state for image in table]
                self.tables.append(table)

    def __call__(self, mask: int) -> int:
        if self.tables:
            image = 0
            for table in self.tables:
                image |= table[mask & 255]
                mask >>= 8
            return image
        size = len(self.action)
        packed = numpy.frombuffer(mask.to_bytes(-(-size // 8), "little"), numpy.uint8)
        marks = numpy.zeros(size, numpy.uint8)
        marks[self.action[numpy.unpackbits(packed, count=size, bitorder="little").view(bool)]] = 1
        return int.from_bytes(numpy.packbits(marks, bitorder="little").tobytes(), "little")
