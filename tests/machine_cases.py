"""Machines to test with, and the slow and obvious ways to run and compare them."""

from __future__ import annotations

from itertools import product

import numpy
from hypothesis import strategies

from latchwork.automata import Machine


def slow_run(machine: Machine, word) -> list[int]:
    """One step after the other."""
    state, outputs = machine.start, []
    for symbol in word:
        outputs.append(int(machine.outputs[state, symbol]))
        state = int(machine.transitions[state, symbol])
    return outputs


def words(symbols: int, longest: int) -> list[tuple[int, ...]]:
    """All words of length 1 to `longest`, shorter ones first."""
    return [word for length in range(1, longest + 1) for word in product(range(symbols), repeat=length)]


def random_machine(seed: int, states: int, symbols: int = 2, outputs: int = 2) -> Machine:
    random = numpy.random.default_rng((seed, states, symbols, outputs))
    shape = (states, symbols)
    return Machine.from_table(random.integers(states, size=shape), random.integers(outputs, size=shape))


def semiautomaton(*actions) -> Machine:
    """Symbol k takes state s to actions[k][s]; the output is the state that follows."""
    transitions = numpy.array(actions).T
    return Machine.from_table(transitions, transitions)


@strategies.composite
def machines(draw, states: int = 6, symbols: int = 3, outputs: int = 3) -> Machine:
    """Machines of at most these sizes, of which many states are not reached."""
    rows, columns = draw(strategies.integers(1, states)), draw(strategies.integers(1, symbols))

    def table(largest: int):
        row = strategies.lists(strategies.integers(0, largest), min_size=columns, max_size=columns)
        return draw(strategies.lists(row, min_size=rows, max_size=rows))

    return Machine.from_table(table(rows - 1), table(outputs - 1), start=draw(strategies.integers(0, rows - 1)))
