import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from network_cases import all_words, answers, prove

from latchwork.automata import (
    Component,
    DecompositionTooLarge,
    Machine,
    blocks,
    cascade,
    general_unit,
    identity_reset_unit,
    permutation_unit,
)

UNITS = {
    "latch": identity_reset_unit([None, 0, 2, 1], levels=(-1.0, 0.25, 7.0)),
    "S3": permutation_unit([(1, 2, 0), (1, 0, 2)]),
    "S4 at other levels": permutation_unit([(1, 2, 3, 0), (1, 0, 2, 3)], levels=(3.0, -2.0, 0.5, 8.0)),
    "general": general_unit([[1, 0], [2, 0], [2, 1]], low=-3.0, high=5.0),
    "one state": general_unit([[0, 0]]),
}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_unit_is_its_semiautomaton(name, dtype):
    unit = UNITS[name]
    words = all_words(unit.s.shape[0], 5)
    for start in range(len(unit.codes)):
        states = unit.run(torch.from_numpy(words), start, dtype)
        expected = unit.machine(start).run(words)
        assert (unit.decode(states).numpy() == expected).all()
        assert torch.equal(states, unit.codes.to(dtype)[torch.from_numpy(expected)])


@pytest.mark.parametrize("name", UNITS)
def test_as_a_module_it_does_the_same(name):
    unit = UNITS[name]
    words = torch.from_numpy(all_words(unit.s.shape[0], 5))
    start = len(unit.codes) - 1
    neuron = unit.neuron(start)
    with torch.no_grad():
        y, _ = neuron(torch.eye(neuron.d_model)[words])
    assert torch.equal(y[..., : unit.degree], unit.run(words, start))


def test_degrees():
    assert [unit.degree for unit in UNITS.values()] == [1, 3, 4, 3, 1]


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_a_cascade_does_what_its_components_do(seed, count):
    random = numpy.random.default_rng(seed)
    symbols = int(random.integers(1, 4))
    sizes = random.integers(1, 4, size=count)
    tables = [random.integers(n, size=(n, int(random.integers(1, 4)))) for n in sizes]
    reads = [random.integers(table.shape[1], size=(symbols, *sizes[:k])) for k, table in enumerate(tables)]
    starts = [int(random.integers(n)) for n in sizes]
    answer = random.integers(3, size=tuple(sizes))
    components = [
        Component(table, lambda symbol, before, read=read: int(read[(symbol, *before)]), start)
        for table, read, start in zip(tables, reads, starts, strict=True)
    ]
    model = cascade(symbols, components, lambda states: int(answer[states]))
    words = random.integers(symbols, size=(4, 12))
    expected = []
    for word in words:
        states, said = tuple(starts), []
        for symbol in word:
            inputs = [read[(symbol, *states[:k])] for k, read in enumerate(reads)]
            states = tuple(int(table[state, i]) for table, state, i in zip(tables, states, inputs, strict=True))
            said.append(answer[states])
        expected.append(said)
    assert (answers(model, words) == numpy.array(expected)).all()


def test_a_cascade_of_identities_and_resets_has_degree_one_and_is_proved():
    """The last two symbols: a shift register. Each component takes the state that the one before it had."""
    components = [
        Component([[0, 1], [0, 1]], lambda symbol, before: symbol),
        Component([[0, 1], [0, 1]], lambda symbol, before: before[0]),
    ]
    model = cascade(2, components, lambda states: 2 * states[1] + states[0])
    assert model.config.backbone.degree == 1
    pairs = [[(2 * state + symbol) % 4 for symbol in range(2)] for state in range(4)]
    assert prove(model, Machine.from_table(pairs, pairs)) >= 4


def test_what_is_wrong_is_named(monkeypatch):
    with pytest.raises(ValueError, match=r"targets must be None or a state, 0..1, for each symbol; got \[2\]"):
        identity_reset_unit([2])
    with pytest.raises(ValueError, match="levels must be distinct"):
        identity_reset_unit([0], levels=(1.0, 1.0))
    with pytest.raises(ValueError, match="actions must be permutations of the same places"):
        permutation_unit([(0, 0)])
    with pytest.raises(ValueError, match="levels must be 2, one for each place; got 1"):
        permutation_unit([(1, 0)], levels=(1.0,))
    with pytest.raises(ValueError, match=r"low must be less than high; got 1.0 and 0.0"):
        general_unit([[0]], low=1.0, high=0.0)
    with pytest.raises(ValueError, match="components must be at least one"):
        cascade(2, [], lambda states: 0)
    with pytest.raises(ValueError, match=r"components\[0\].reads must give an input, 0..0; got 1 for symbol 1"):
        cascade(2, [Component([[0]], lambda symbol, before: symbol)], lambda states: 0)
    with pytest.raises(ValueError, match="output must be at least 0 for all states; got -1"):
        cascade(1, [Component([[0]], lambda symbol, before: symbol)], lambda states: -1)
    with pytest.raises(DecompositionTooLarge, match="rules"):
        cascade(2, [Component([[0, 0]], lambda symbol, before: symbol)], lambda states: 0, max_rules=1)
    monkeypatch.setattr(blocks, "MAX_ARRANGEMENTS", 5)
    with pytest.raises(DecompositionTooLarge, match="5 arrangements and no end; take general_unit"):
        permutation_unit([(1, 2, 0), (1, 0, 2)])
