"""From a machine to a network that does the same on every word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy

from latchwork.automata.holonomy import Holonomy, holonomy
from latchwork.automata.machine import Machine
from latchwork.automata.network import FIRST, Action, Bit, Network, Rule, Unit
from latchwork.models import MinMaxRNC_LM

Conditions = list[tuple[Bit, ...]]  # alternatives: one of them holds where all its bits are 1


def compile(machine: Machine, method: Literal["cascade", "one_hot"] = "cascade") -> MinMaxRNC_LM:
    """A network whose answer, the output of the largest logit, is the machine's at every step of every word.

    It is an ordinary model without norms, with small integers for weights and bits for activations: exact in float32
    and bfloat16. It can be saved, streamed, exported and trained on.

    method: "cascade", the holonomy decomposition with one layer for each level: units of degree one where the level
    has no group, so that a group-free machine becomes a network of degree one; else units as large as the level's
    tiles. "one_hot": one unit with as many bits as the machine has states. It is the smaller network, and the degree
    is the number of states.
    >>> import torch
    >>> model = compile(Machine.from_regex("a(b|c)*", "abc"))
    >>> model(torch.tensor([[0, 1, 2, 0]]))[0].argmax(-1)
    tensor([[1, 1, 1, 0]])
    """
    if method == "cascade":
        return _cascade(holonomy(machine))
    if method == "one_hot":
        return _one_hot(machine)
    raise ValueError(f"method must be 'cascade' or 'one_hot'; got {method!r}")


def _one_hot(machine: Machine) -> MinMaxRNC_LM:
    network = Network(machine.n_symbols)
    states = range(machine.n_states)
    unit = Unit(
        start=[int(state == machine.start) for state in states],
        actions=[Action.move(column) for column in machine.transitions.T.tolist()],
        rules=[Rule((token,), symbol) for symbol, token in enumerate(network.tokens)],
    )
    network.add([unit])
    return _with_outputs(network, machine, [[(unit.bits[state],)] for state in states])


def _cascade(cascade: Holonomy) -> MinMaxRNC_LM:
    """Layer d holds coordinate d, and the set that the coordinates before it lead down to, each as bits."""
    machine = cascade.machine
    network = Network(machine.n_symbols)
    now: dict[int, Conditions] = {0: [()]}  # for each set before this level, what says that the new one is it
    for depth in range(len(cascade.levels)):
        coordinate = _coordinate(network, cascade, depth, now)
        places = sorted(now)
        here = Unit(
            start=[0] * len(places),
            actions=[Action.reset(len(places), place) for place in range(len(places))],
            rules=[Rule(bits, place) for place, node in enumerate(places) for bits in now[node]],
        )
        network.add([coordinate, here] if len(places) > 1 else [coordinate])
        following: dict[int, Conditions] = {}
        for place, node in enumerate(places):
            at = (here.bits[place],) if len(places) > 1 else ()
            if cascade.depth[node] == depth:
                for tile, below in enumerate(cascade.tiles[node]):
                    following.setdefault(below, []).append((*at, coordinate.bits[tile]))
            else:
                following.setdefault(node, []).append(at)
        now = following
    single = {cascade.sets[node][0]: conditions for node, conditions in now.items()}
    return _with_outputs(network, machine, [single.get(state, []) for state in range(machine.n_states)])


def _coordinate(network: Network, cascade: Holonomy, depth: int, now: dict[int, Conditions]) -> Unit:
    """The unit of one level: it holds, unless the old set, the symbol and the new set say otherwise."""
    level, start_set = cascade.levels[depth], cascade.path(cascade.start)[depth]
    numbers: dict[tuple[int, ...], int] = {}
    rules: list[Rule] = []
    for (old, symbol, new), action in sorted(level.actions.items(), key=lambda item: item[0]):
        if action.kind == "identity" or old not in now or new not in now:
            continue
        number = numbers.setdefault(action.images, len(numbers))
        for before in _before(now[old], old == start_set):
            rules.extend(Rule((*before, network.tokens[symbol], *after), number) for after in now[new])
    tiles = range(level.tiles)
    return Unit(
        start=[int(tile == cascade.start[depth]) for tile in tiles],
        actions=[
            Action.reset(level.tiles, images[0]) if len({*images}) == 1 < level.tiles else Action.move(images)
            for images in numbers
        ],
        rules=rules,
    )


def _before(conditions: Conditions, at_first: bool) -> Conditions:
    """The same one step before; before the first step, that it is the first. Without bits, it always holds."""
    if () in conditions:
        return [()]
    before: Conditions = [tuple(Bit(bit.number, before=True) for bit in bits) for bits in conditions]
    return [*before, (FIRST,)] if at_first else before


def _with_outputs(network: Network, machine: Machine, states: Sequence[Conditions]) -> MinMaxRNC_LM:
    """Add the layer that says the output, from what says each state, and build."""
    outputs = int(machine.outputs.max()) + 1
    rules: list[Rule] = []
    of_state = _of_the_new_state(machine)
    for state, conditions in enumerate(states):
        if of_state is not None:
            if of_state[state] >= 0:
                rules.extend(Rule(bits, int(of_state[state])) for bits in conditions)
            continue
        before = _before(conditions, state == machine.start)
        rules.extend(
            Rule((*bits, token), int(machine.outputs[state, symbol]))
            for bits in before
            for symbol, token in enumerate(network.tokens)
        )
    unit = Unit([0] * outputs, [Action.reset(outputs, output) for output in range(outputs)], rules)
    network.add([unit])
    return network.build([[bit] for bit in unit.bits])


def _of_the_new_state(machine: Machine) -> numpy.ndarray | None:
    """The output by the state that a step leads to, -1 where none does; None if one state would need two."""
    output = numpy.full(machine.n_states, -1)
    output[machine.transitions] = machine.outputs
    return output if (output[machine.transitions] == machine.outputs).all() else None
