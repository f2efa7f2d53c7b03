"""From a machine to a network that does the same on every word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy

from latchwork.automata.errors import DecompositionTooLarge
from latchwork.automata.holonomy import Holonomy, Level, holonomy
from latchwork.automata.network import (
    MAX_RULES,
    MAX_WEIGHTS,
    Conditions,
    Network,
    Rule,
    Size,
    Unit,
    UnitAction,
    before_step,
    check_weights,
    one_of,
)
from latchwork.automata.split import split
from latchwork.automata.split_layers import Causes, split_level
from latchwork.automata.subsets import MAX_SETS, Permutation
from latchwork.automata.transformation import TransformationNetwork
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM

MUCH = 4  # another layer is added if it saves this many times its own rules
FEW_SETS = 1000  # of a decomposition that is looked at only because it may be the smallest
METHODS = ("transformation", "one_hot", "cascade")
Method = Literal["smallest", "transformation", "one_hot", "cascade"]
Groups = Literal["direct", "series"]


def compile(
    machine: Machine,
    method: Method = "smallest",
    groups: Groups = "direct",
    *,
    max_rules: int = MAX_RULES,
    max_weights: int = MAX_WEIGHTS,
) -> MinMaxRNC_LM:
    """A network whose answer, the output of the largest logit, is the machine's at every step of every word.

    It is an ordinary model without norms, with small integers for weights and bits for activations: exact in float32
    and bfloat16. It can be saved, streamed, exported and trained on, and `certify` proves it.

    method:
    "transformation": one layer with one unit that sends each state to the next (`TransformationCell`). The degree is
    the number of states.
    "one_hot": the same by a matrix unit of the paper, and a second layer for the output.
    "cascade": the holonomy decomposition with a layer or two for each level: units of degree one where the level has no
    group, so that a group-free machine becomes a network of degree one. It is the larger network: it buys the degree.
    "smallest": the one of the fewest weights that takes the machine. `sizes` says what each costs.
    groups: of a cascade. "direct": a level that has one is a unit of as many bits as the level has tiles. "series":
    where that is more than the machine's `degree`, the group is split into simple ones, a layer for each, so that the
    network's degree is the machine's.
    max_rules: the most hidden units of a cascade. max_weights: the most weights of a network. Beyond them
    DecompositionTooLarge is raised, as soon as it is sure.
    >>> import torch
    >>> model = compile(Machine.from_regex("a(b|c)*", "abc"))
    >>> model(torch.tensor([[0, 1, 2, 0]]))[0].argmax(-1)
    tensor([[1, 1, 1, 0]])
    >>> four = Machine.from_regex("(aaaa)*", "a")
    >>> [compile(four, "cascade", each).config.backbone.degree for each in ("direct", "series")]
    [4, 2]
    """
    _check(method, groups, max_rules, max_weights)
    if method != "smallest":
        return _plan(machine, method, groups, max_rules, max_weights).build()
    best, error = None, None
    for each in METHODS:
        try:
            plan = _plan(machine, each, groups, max_rules, max_weights, FEW_SETS)
            max_weights = check_weights(plan.size.weights, max_weights) - 1  # the next must be smaller
            best = plan
        except DecompositionTooLarge as refused:
            error = error or refused
    if best is None:
        assert error is not None
        raise error
    best.max_weights = best.size.weights
    return best.build()


def sizes(
    machine: Machine,
    groups: Groups = "direct",
    *,
    max_rules: int = MAX_RULES,
    max_weights: int = MAX_WEIGHTS,
    max_sets: int = MAX_SETS,
) -> dict[str, Size | DecompositionTooLarge]:
    """What a network costs by each method, or why it is refused, without making any.

    max_sets: a cascade that needs more sets of states is refused (`holonomy`). Else the arguments are those of
    `compile`.

    >>> for method, size in sizes(Machine.from_regex("(ab)*")).items():
    ...     print(f"{method}: {size}")
    transformation: 135 weights, one layer, degree 3
    one_hot: 860 weights, 2 layers, degree 3
    cascade: 1,548 weights, 3 layers, degree 1
    """
    _check("cascade", groups, max_rules, max_weights)
    found: dict[str, Size | DecompositionTooLarge] = {}
    for method in METHODS:
        try:
            plan = _plan(machine, method, "direct" if method != "cascade" else groups, max_rules, max_weights, max_sets)
            check_weights(plan.size.weights, max_weights)
            found[method] = plan.size
        except DecompositionTooLarge as error:
            found[method] = error
    return found


def _check(method: str, groups: str, max_rules: int, max_weights: int) -> None:
    if groups not in ("direct", "series"):
        raise ValueError(f"groups must be 'direct' or 'series'; got {groups!r}")
    if method not in ("smallest", *METHODS):
        names = ", ".join(map(repr, ("smallest", *METHODS)))
        raise ValueError(f"method must be one of {names}; got {method!r}")
    if groups != "direct" and method != "cascade":
        raise ValueError(f"groups must be 'direct' with method {method!r}, which splits nothing; got {groups!r}")
    for name, value in (("max_rules", max_rules), ("max_weights", max_weights)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")


def _plan(
    machine: Machine, method: str, groups: str, max_rules: int, max_weights: int, max_sets: int = MAX_SETS
) -> Network | TransformationNetwork:
    if method == "transformation":
        return TransformationNetwork(machine, max_weights)
    if method == "one_hot":
        check_weights(machine.n_states**2 * (machine.n_states + machine.n_symbols), max_weights)
        return _one_hot(machine, max_weights)
    return _cascade(holonomy(machine, max_sets), groups == "series", max_rules, max_weights)


def _one_hot(machine: Machine, max_weights: int) -> Network:
    network = Network(machine.n_symbols, None, max_weights)
    states = range(machine.n_states)
    unit = Unit(
        start=[int(state == machine.start) for state in states],
        actions=[UnitAction.move(column) for column in machine.transitions.T.tolist()],
        rules=[Rule((token,), symbol) for symbol, token in enumerate(network.tokens)],
    )
    network.add([unit])
    return _with_outputs(network, machine, [[(unit.bits[state],)] for state in states])


def _cascade(cascade: Holonomy, series: bool, max_rules: int, max_weights: int) -> Network:
    """For each level its coordinate, and the set that the coordinates before it lead down to, each as bits."""
    machine = cascade.machine
    network = Network(machine.n_symbols, max_rules, max_weights)
    parts = split(cascade) if series else None
    path = cascade.path(cascade.start)
    now: dict[int, Conditions] = {0: [()]}  # for each set before this level, what says that the new one is it
    for depth, level in enumerate(cascade.levels):
        if _settling_pays(level, now):
            settled = one_of(now)
            network.add([settled])
            now = {node: [(bit,)] for node, bit in zip(now, settled.bits, strict=True)}
        causes = _causes(network, level, now, path[depth])
        here = one_of(now)
        known = all(len(conditions) == 1 for conditions in now.values())  # already, by one condition for each
        beside = [] if known else [here]
        if parts is not None and parts.levels[depth].points and level.tiles > parts.degree:
            tiles = split_level(network, parts.levels[depth], parts.start[depth], now, causes, beside)
        else:
            coordinate = _coordinate(level, cascade.start[depth], causes)
            network.add([coordinate, *beside])
            tiles = coordinate.bits
        following: dict[int, Conditions] = {}
        for place, node in enumerate(now):
            at = now[node][0] if known else (here.bits[place],)
            if cascade.depth[node] == depth:
                for tile, below in enumerate(cascade.tiles[node]):
                    following.setdefault(below, []).append((*at, tiles[tile]))
            else:
                following.setdefault(node, []).append(at)
        now = dict(sorted(following.items()))
    single = {cascade.sets[node][0]: conditions for node, conditions in now.items()}
    return _with_outputs(network, machine, [single.get(state, []) for state in range(machine.n_states)])


def _settling_pays(level: Level, now: Mapping[int, Conditions]) -> bool:
    """Whether a layer that says which set it is, with one bit for each, saves many rules of the level."""
    acting = [key for key, action in level.actions.items() if action.kind != "identity"]
    alternatives = [len(now[old]) * len(now[new]) for old, _, new in acting if old in now and new in now]
    return sum(alternatives) > MUCH * (len(alternatives) + sum(map(len, now.values())))


def _causes(network: Network, level: Level, now: Mapping[int, Conditions], start: int) -> Causes:
    """What makes a level act: the old set, the symbol and the new set. Where nothing does, it stays as it is."""
    class_of = {node: number for number, nodes in enumerate(level.classes) for node in nodes}
    causes: Causes = {}
    count = 0
    for (old, symbol, new), action in sorted(level.actions.items(), key=lambda item: item[0]):
        if action.kind == "identity" or old not in now or new not in now:
            continue
        before = before_step(now[old], old == start)
        network.check_room(count := count + len(before) * len(now[new]))
        causes.setdefault((class_of[new], action), []).extend(
            (*then, network.tokens[symbol], *after) for then in before for after in now[new]
        )
    return causes


def _coordinate(level: Level, start: int, causes: Causes) -> Unit:
    """The unit of one level, with a bit for each tile."""
    n = level.tiles
    numbers: dict[Permutation, int] = {}
    rules: list[Rule] = []
    for (_, action), conditions in causes.items():
        number = numbers.setdefault(action.images, len(numbers))
        rules.extend(Rule(bits, number) for bits in conditions)
    constant = [len({*images}) == 1 for images in numbers]
    write = UnitAction.only if all(constant) else UnitAction.reset
    actions = [
        write(n, images[0]) if one else UnitAction.move(images) for images, one in zip(numbers, constant, strict=True)
    ]
    return Unit([int(tile == start) for tile in range(n)], actions, rules)


def _with_outputs(network: Network, machine: Machine, states: Sequence[Conditions]) -> Network:
    """Add the layer that says the output, from what says each state."""
    outputs = int(machine.outputs.max()) + 1
    rules: list[Rule] = []
    of_state = _of_the_new_state(machine)
    for state, conditions in enumerate(states):
        if of_state is not None:
            if of_state[state] >= 0:
                rules.extend(Rule(bits, int(of_state[state])) for bits in conditions)
            continue
        before = before_step(conditions, state == machine.start)
        rules.extend(
            Rule((*bits, token), int(machine.outputs[state, symbol]))
            for bits in before
            for symbol, token in enumerate(network.tokens)
        )
    unit = Unit([0] * outputs, [UnitAction.only(outputs, output) for output in range(outputs)], rules)
    network.add([unit])
    network.outputs = [[bit] for bit in unit.bits]
    return network


def _of_the_new_state(machine: Machine) -> numpy.ndarray | None:
    """The output by the state that a step leads to, -1 where none does; None if one state would need two."""
    output = numpy.full(machine.n_states, -1)
    output[machine.transitions] = machine.outputs
    return output if (output[machine.transitions] == machine.outputs).all() else None
