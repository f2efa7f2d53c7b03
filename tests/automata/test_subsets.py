import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchwork.automata import DecompositionTooLarge, Machine, is_group_free
from latchwork.automata import subsets as module
from latchwork.automata.subsets import members, strong_components, subsets
from machine_cases import machines, random_machine, semiautomaton


def images(machine: Machine) -> set[frozenset[int]]:
    """Of all states under all words."""
    found = {frozenset(range(machine.n_states))}
    for each in (waiting := list(found)):
        for symbol in range(machine.n_symbols):
            image = frozenset(int(machine.transitions[state, symbol]) for state in each)
            if image not in found:
                found.add(image)
                waiting.append(image)
    return found


@given(machines(states=7))
def test_the_sets_are_the_images_of_all_states(machine):
    graph = subsets(machine)
    assert {frozenset(members(each)) for each in graph.sets} == images(machine)
    for mask, row in zip(graph.sets, graph.successor, strict=True):
        for symbol, following in enumerate(row):
            image = {int(machine.transitions[state, symbol]) for state in members(mask)}
            assert set(members(graph.sets[following])) == image
    singles = {frozenset([state]) for state in range(machine.n_states)}
    with_singletons = subsets(machine, singletons=True)
    assert {frozenset(members(each)) for each in with_singletons.sets} == images(machine) | singles


@pytest.mark.parametrize("states", [1, 7, 8, 9, 70, 80])
def test_few_states_and_many_have_the_same_graph(states, monkeypatch):
    machine = random_machine(3, states)
    if states == 70:
        machine = semiautomaton([*range(1, 70), 0], [35] * 70)
    if states == 80:
        machine = semiautomaton([state // 2 for state in range(80)], [79 - state // 3 for state in range(80)])
    by_tables = subsets(machine, singletons=True)
    monkeypatch.setattr(module, "FEW", 0)
    assert subsets(machine, singletons=True) == by_tables


@given(st.integers(1, 8), st.data())
def test_components_are_those_that_lead_to_each_other(nodes, data):
    row = st.lists(st.integers(0, nodes - 1), max_size=3)
    successor = data.draw(st.lists(row, min_size=nodes, max_size=nodes))
    reach = numpy.eye(nodes, dtype=bool)
    for _ in range(nodes):
        for node, following in enumerate(successor):
            for after in following:
                reach[node] |= reach[after]
    components = strong_components(successor)
    assert sorted(node for component in components for node in component) == list(range(nodes))
    place = {node: k for k, component in enumerate(components) for node in component}
    for a in range(nodes):
        for b in range(nodes):
            assert (place[a] == place[b]) == bool(reach[a, b] and reach[b, a])
            if reach[a, b]:
                assert place[b] <= place[a]


@given(machines(states=6))
def test_words_that_leave_a_set_alone_permute_it_as_the_generators_do(machine):
    graph = subsets(machine)
    for component in graph.components:
        for node, way in graph.maps(component).items():
            assert tuple(sorted(way)) == members(graph.sets[node])
        for generator in graph.generators(component):
            assert sorted(generator) == list(range(len(generator)))


def test_sets_of_very_many_states_are_fewer():
    machine = random_machine(0, 3000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_BITS", 30_000)
        with pytest.raises(DecompositionTooLarge, match=r"1. sets of states"):
            is_group_free(machine)
    with pytest.raises(ValueError, match="max_sets must be at least 1; got 0"):
        is_group_free(machine, max_sets=0)
