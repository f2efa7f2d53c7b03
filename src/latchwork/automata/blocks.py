"""The building blocks of the theory: semiautomata that are single MinMax units, and cascades of semiautomata.

A unit moves its state x to max(r (x) x, s), with an r and an s for each symbol, and holds a state of the semiautomaton
as a vector of numbers, its code. All that a step does is to select among these numbers, so nothing is ever rounded,
whatever the levels are at which they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy
import torch
from torch import Tensor

from latchwork.automata.errors import DecompositionTooLarge
from latchwork.automata.network import FIRST, MAX_RULES, Bit, Network, Rule, Unit, UnitAction
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM
from latchwork.modules.cells import make_cells
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.ops import minmax_scan

MAX_ARRANGEMENTS = 50_000
Table = numpy.ndarray | Sequence[Sequence[int]]


@dataclass(frozen=True)
class SemiautomatonUnit:
    """A MinMax unit of state degree n that is a semiautomaton.

    transitions: (states, symbols), as in a Machine. codes: (states, n), the unit's state for each. r: (symbols, n, n)
    and s: (symbols, n), what each symbol does.
    """

    transitions: numpy.ndarray
    codes: Tensor
    r: Tensor
    s: Tensor

    @property
    def degree(self) -> int:
        """The state degree n."""
        return self.codes.shape[1]

    def run(self, words: Tensor, start: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """The unit's state after each symbol: words (B, T) to (B, T, n), by the recurrence."""
        r, s, x0 = self.r.to(dtype)[words], self.s.to(dtype)[words], self.codes.to(dtype)[start]
        if self.degree == 1:
            return minmax_scan(r.squeeze(-1), s, x0)
        return minmax_scan(r.unsqueeze(2), s.unsqueeze(2), x0.unsqueeze(0)).squeeze(2)

    def decode(self, x: Tensor) -> Tensor:
        """The semiautomaton's states from the unit's: (..., n) to (...), the one whose code is nearest."""
        distance = (x.double().unsqueeze(-2) - self.codes.double()).abs().amax(-1)
        return distance.argmin(-1)

    def machine(self, start: int = 0) -> Machine:
        """The semiautomaton as a machine that says the state that follows."""
        return Machine.from_table(self.transitions, self.transitions, start)

    def neuron(self, start: int = 0) -> MinMaxNeuron:
        """The same as a module: its input is the symbol, one-hot, and the first n numbers of its output are x."""
        symbols, n = self.s.shape
        d_model = max(symbols, n)
        neuron = MinMaxNeuron(d_model, make_cells(n, degree=n), output_gate=False)
        with torch.no_grad():
            for parameter in neuron.parameters():
                parameter.zero_()
            neuron.projection.weight[: n * n, :symbols] = self.r.flatten(1).T
            neuron.projection.weight[n * n :, :symbols] = self.s.T
            neuron.output.weight[:n] = torch.eye(n)
            neuron.x0.copy_(self.codes[start])
        return neuron.eval()


def identity_reset_unit(targets: Sequence[int | None], levels: Sequence[float] = (0.0, 1.0)) -> SemiautomatonUnit:
    """Symbol k leaves the state alone, where targets[k] is None, or sets it to targets[k]; state q is levels[q].

    One scalar is enough: the identity is r = the highest level and s = the lowest; a reset to q is r = the lowest
    level and s = levels[q].
    >>> latch = identity_reset_unit([None, 0, 1])
    >>> latch.decode(latch.run(torch.tensor([[2, 0, 0, 1, 0]])))
    tensor([[1, 1, 1, 0, 0]])
    """
    _check_levels(levels)
    states = range(len(levels))
    if not targets or any(target is not None and target not in states for target in targets):
        raise ValueError(f"targets must be None or a state, 0..{len(levels) - 1}, for each symbol; got {targets}")
    low, high = min(levels), max(levels)
    return SemiautomatonUnit(
        numpy.array([[state if target is None else target for target in targets] for state in states]),
        torch.tensor(levels, dtype=torch.float32).unsqueeze(1),
        torch.tensor([high if target is None else low for target in targets], dtype=torch.float32).view(-1, 1, 1),
        torch.tensor([low if each is None else levels[each] for each in targets], dtype=torch.float32).unsqueeze(1),
    )


def permutation_unit(actions: Sequence[Sequence[int]], levels: Sequence[float] | None = None) -> SemiautomatonUnit:
    """Symbol k moves what stands at place i to actions[k][i], a permutation of n places.

    The places hold n levels, and a state is an arrangement of them: as many as the permutations generate, from state 0
    in which place i holds levels[i]. So the degree is n, and there may be n! states. The matrix is in push form,
    r[actions[k][i], i] = the highest level; the paper prints pull, which is the inverse.
    >>> turn_and_swap = permutation_unit([(1, 2, 0), (1, 0, 2)])
    >>> turn_and_swap.degree, len(turn_and_swap.codes)
    (3, 6)
    """
    n = len(actions[0]) if actions else 0
    if n == 0 or any(sorted(action) != list(range(n)) for action in actions):
        raise ValueError(f"actions must be permutations of the same places 0..n-1; got {actions}")
    values = torch.arange(n, dtype=torch.float32) if levels is None else torch.tensor(levels, dtype=torch.float32)
    if len(values) != n:
        raise ValueError(f"levels must be {n}, one for each place; got {len(values)}")
    _check_levels(values.tolist())
    start = tuple(range(n))
    number, arrangements, rows = {start: 0}, [start], []
    for here in arrangements:
        row = []
        for action in actions:
            after = [0] * n
            for place, to in enumerate(action):
                after[to] = here[place]
            following = tuple(after)
            if following not in number:
                if len(arrangements) == MAX_ARRANGEMENTS:
                    raise DecompositionTooLarge("arrangements", MAX_ARRANGEMENTS, "take general_unit, on the places")
                number[following] = len(arrangements)
                arrangements.append(following)
            row.append(number[following])
        rows.append(row)
    r = torch.full((len(actions), n, n), float(values.min()))
    for symbol, action in enumerate(actions):
        r[symbol, list(action), range(n)] = values.max()
    return SemiautomatonUnit(
        numpy.array(rows), values[torch.tensor(arrangements)], r, torch.full((len(actions), n), float(values.min()))
    )


def general_unit(transitions: Table, low: float = 0.0, high: float = 1.0) -> SemiautomatonUnit:
    """Any semiautomaton, by its table (states, symbols): one-hot, its state at `high` and the others at `low`.

    >>> even = general_unit([[0, 1], [1, 0]])
    >>> even.decode(even.run(torch.tensor([[1, 0, 1, 1]])))
    tensor([[1, 1, 0, 1]])
    """
    if not low < high:
        raise ValueError(f"low must be less than high; got {low} and {high}")
    table = Machine.from_table(transitions, transitions).transitions.copy()
    states, symbols = table.shape
    r = torch.full((symbols, states, states), float(low))
    for symbol in range(symbols):
        r[symbol, table[:, symbol], range(states)] = high
    codes = torch.full((states, states), float(low)).fill_diagonal_(high)
    return SemiautomatonUnit(table, codes, r, torch.full((symbols, states), float(low)))


@dataclass(frozen=True)
class Component:
    """A semiautomaton in a cascade.

    transitions: (states, inputs). reads: its input, from the symbol and the states that the components before it had
    before the step. start: its first state.
    """

    transitions: Table
    reads: Callable[[int, tuple[int, ...]], int]
    start: int = 0


def cascade(
    symbols: int, components: Sequence[Component], output: Callable[[tuple[int, ...]], int], max_rules: int = MAX_RULES
) -> MinMaxRNC_LM:
    """The network in which each component is a layer; its answer is `output` of the states after the step.

    A component of identities and resets is made of units of degree one; else its unit has as many bits as states.
    Raises DecompositionTooLarge beyond max_rules hidden units.
    >>> latch = Component([[0, 0, 1], [1, 0, 1]], lambda symbol, before: symbol)  # hold, off, on
    >>> count = Component([[0, 1], [1, 0]], lambda symbol, before: before[0])  # the steps that found it on, modulo 2
    >>> model = cascade(3, [latch, count], lambda states: states[1])
    >>> model(torch.tensor([[2, 0, 0, 1, 0]]))[0].argmax(-1)
    tensor([[0, 1, 0, 1, 1]])
    """
    if not components:
        raise ValueError("components must be at least one; got none")
    network = Network(symbols, max_rules)
    tables = [Machine.from_table(each.transitions, each.transitions, each.start).transitions for each in components]
    starts = tuple(each.start for each in components)
    units: list[Unit] = []
    for place, (component, table) in enumerate(zip(components, tables, strict=True)):
        states = [tuple(each) for each in product(*(range(len(earlier)) for earlier in tables[:place]))]
        network.check_room(symbols * len(states))
        rules = []
        for before in states:
            for when in _held(units, before, starts):
                rules += [
                    Rule((*when, token), _input(component, place, symbol, before, table))
                    for symbol, token in enumerate(network.tokens)
                ]
        unit = Unit([int(state == component.start) for state in range(len(table))], _actions(table), rules)
        network.add([unit])
        units.append(unit)
    ends = [tuple(each) for each in product(*(range(len(table)) for table in tables))]
    network.check_room(len(ends))
    answers = [output(each) for each in ends]
    if min(answers) < 0:
        raise ValueError(f"output must be at least 0 for all states; got {min(answers)}")
    rules = [
        Rule(tuple(unit.bits[state] for unit, state in zip(units, end, strict=True)), answer)
        for end, answer in zip(ends, answers, strict=True)
    ]
    n = max(answers) + 1
    answer = Unit([0] * n, [UnitAction.only(n, place) for place in range(n)], rules)
    network.add([answer])
    network.outputs = [[bit] for bit in answer.bits]
    return network.build()


def _held(units: Sequence[Unit], states: tuple[int, ...], starts: tuple[int, ...]) -> list[tuple[Bit, ...]]:
    """What says that the units had these states before the step."""
    if not units:
        return [()]
    then = tuple(Bit(unit.bits[state].number, before=True) for unit, state in zip(units, states, strict=True))
    return [then, (FIRST,)] if states == starts[: len(states)] else [then]


def _input(component: Component, place: int, symbol: int, before: tuple[int, ...], table: numpy.ndarray) -> int:
    read = component.reads(symbol, before)
    if not 0 <= read < table.shape[1]:
        raise ValueError(
            f"components[{place}].reads must give an input, 0..{table.shape[1] - 1}; "
            f"got {read} for symbol {symbol} and states {before}"
        )
    return read


def _actions(table: numpy.ndarray) -> list[UnitAction]:
    """One for each input; all of degree one, if each is the identity or a reset."""
    n = len(table)
    columns = [tuple(column) for column in table.T.tolist()]
    kept = tuple(range(n))
    if all(column == kept or len({*column}) == 1 for column in columns):
        same = UnitAction(numpy.ones((1, 1), numpy.int8), numpy.zeros(n, numpy.int8))
        return [same if column == kept else UnitAction.only(n, column[0]) for column in columns]
    return [UnitAction.move(column) for column in columns]


def _check_levels(levels: Sequence[float]) -> None:
    if len({*levels}) != len(levels) or not levels:
        raise ValueError(f"levels must be distinct, and at least one; got {list(levels)}")
