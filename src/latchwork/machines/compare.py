"""Tables of machines compared: the states that are reached, those that do the same, and where two machines differ."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy

Array = numpy.ndarray
Node = TypeVar("Node", bound=Hashable)


def explore(start: Node, successors: Callable[[Node], Sequence[Node]]) -> tuple[list[Node], list[list[int]]]:
    """The nodes met from `start`, breadth first, and the numbers of the successors of each."""
    number = {start: 0}
    nodes, rows = [start], []
    for node in nodes:
        row = []
        for following in successors(node):
            if following not in number:
                number[following] = len(nodes)
                nodes.append(following)
            row.append(number[following])
        rows.append(row)
    return nodes, rows


def blocks(transitions: Array, outputs: Array) -> Array:
    """(states,): equal numbers 0, 1, ... for the states that give the same outputs to every word."""
    block = _columns(outputs)
    while True:  # two states stay together while their outputs agree and their successors are together
        finer = _columns(numpy.column_stack([block, block[transitions]]))
        if finer.max() == block.max():
            return block
        block = finer


def difference(transitions: Array, outputs: Array, one: int, two: int) -> tuple[int, ...] | None:
    """A shortest word at whose last step two states of one table give different outputs; None if there is none.

    Pairs of states are met breadth first. A pair that follows from those met before, because "not told apart so far"
    is transitive, is left out: a word that tells it apart tells apart one of those, which stands no deeper. So the
    word found is still the shortest, and no more pairs are met than there are states.
    """
    following_states, given = transitions.tolist(), outputs.tolist()
    leader = list(range(len(following_states)))

    def find(state: int) -> int:
        while leader[state] != state:
            leader[state] = leader[leader[state]]
            state = leader[state]
        return state

    start = (one, two)
    leader[one] = two
    met: dict[tuple[int, int], tuple[tuple[int, int], int] | None] = {start: None}
    queue = deque([start])
    while queue:
        pair = queue.popleft()
        a, b = pair
        if given[a] != given[b]:
            symbol = next(k for k, (mine, other) in enumerate(zip(given[a], given[b], strict=True)) if mine != other)
            word, step = [symbol], met[pair]
            while step is not None:
                word.append(step[1])
                step = met[step[0]]
            return tuple(reversed(word))
        for symbol, following in enumerate(zip(following_states[a], following_states[b], strict=True)):
            first, second = find(following[0]), find(following[1])
            if first != second:
                leader[first] = second
                met[following] = (pair, symbol)
                queue.append(following)
    return None


def _columns(table: Array) -> Array:
    """(rows,): equal numbers 0, 1, ... for equal rows."""
    number = numpy.zeros(len(table), int)
    for column in table.T:
        _, place = numpy.unique(column, return_inverse=True)
        _, number = numpy.unique(number * (place.max() + 1) + place, return_inverse=True)
    return number
