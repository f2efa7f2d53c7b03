"""What a machine leaves open, and where two machines differ. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy

from latchwork.automata import Machine
from latchwork.learning.traces import Traces

Word = tuple[int, ...]


def only_seen(machine: Machine, traces: Traces, undecided: int) -> Machine:
    """The machine with `undecided` as its output from every step on that no trace takes."""
    seen = numpy.zeros(machine.transitions.shape, bool)
    flat = (machine.transitions * machine.n_symbols).tolist()
    for word in traces.tokens:
        state = machine.start * machine.n_symbols
        for symbol in word.tolist():
            seen.flat[state + symbol] = True
            state = flat[state // machine.n_symbols][symbol]
    states = machine.n_states
    transitions = numpy.vstack(
        [numpy.where(seen, machine.transitions, states), numpy.full((1, machine.n_symbols), states)]
    )
    outputs = numpy.vstack(
        [numpy.where(seen, machine.outputs, undecided), numpy.full((1, machine.n_symbols), undecided)]
    )
    return Machine(transitions, outputs).minimise()


def undecided_words(machine: Machine, undecided: int) -> Iterator[Word]:
    """For each transition whose output is undecided, though its state was reached by decided steps, a shortest word."""
    words: dict[int, Word] = {machine.start: ()}
    queue = deque([machine.start])
    nowhere = _nowhere(machine, undecided)
    while queue:
        state = queue.popleft()
        for symbol in range(machine.n_symbols):
            word, after = (*words[state], symbol), int(machine.transitions[state, symbol])
            if machine.outputs[state, symbol] == undecided:
                yield word
            if after not in words and after not in nowhere:
                words[after] = word
                queue.append(after)


def states_decided(machine: Machine, undecided: int) -> int:
    """How many states there are, without the one in which nothing is known."""
    return machine.n_states - len(_nowhere(machine, undecided))


def _nowhere(machine: Machine, undecided: int) -> set[int]:
    """The state, if any, in which nothing is known and which is never left."""
    own = (machine.transitions == numpy.arange(machine.n_states)[:, None]).all(1)
    return set(numpy.flatnonzero(own & (machine.outputs == undecided).all(1)).tolist())


def differences(one: Machine, other: Machine, undecided: int, most: int = 5) -> list[Word]:
    """Words after which two machines give different labels, the shortest first; not where one of them is undecided.

    >>> a, b = Machine.from_regex("a*", "ab"), Machine.from_regex("a?a?", "ab")
    >>> differences(a, b, undecided=2, most=1)
    [(0, 0, 0)]
    """
    start = (one.start, other.start)
    words: dict[tuple[int, int], Word] = {start: ()}
    queue, found = deque([start]), list[Word]()
    while queue and len(found) < most:
        a, b = queue.popleft()
        for symbol in range(one.n_symbols):
            word = (*words[a, b], symbol)
            said = {int(one.outputs[a, symbol]), int(other.outputs[b, symbol])}
            if len(said) == 2 and undecided not in said:
                found.append(word)
            after = int(one.transitions[a, symbol]), int(other.transitions[b, symbol])
            if after not in words:
                words[after] = word
                queue.append(after)
    return found[:most]
