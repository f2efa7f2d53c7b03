import importlib
import itertools
import os

import numpy
import pytest
import torch
from group_cases import GROUPS, alternating, cyclic, dihedral, elements, side_by_side, symmetric, transformations
from hypothesis import given, settings
from hypothesis import strategies as st
from network_cases import all_words, answers, prove, random_words

from latchwork import automata
from latchwork.automata import (
    DecompositionTooLarge,
    Machine,
    Proof,
    Size,
    certify,
    compile,
    degree,
    holonomy,
    is_group_free,
    sizes,
)
from latchwork.automata import network as network_module
from latchwork.automata import transformation as transformation_module
from latchwork.automata.split import split
from machine_cases import machines, random_machine, semiautomaton

EXPRESSIONS = {  # over a, b, c, and the degree
    "a(b|c)*": 1,
    "(ab)*": 1,
    "(a|b)*abb": 1,
    "a*b*c*": 1,
    "(aa)*": 2,
    "((a|b)(a|b))*": 2,
    "(a|b)*a(a|b)": 1,
    "ab|ba": 1,
    "a?b?c?": 1,
    "(abc)*": 1,
    "a+b+": 1,
    "b*(ab*ab*)*": 2,
    "(a|bc)*": 1,
    "c": 1,
    "(a|b|c)*": 1,
    "(aaa)*": 3,
    "(aaaa)*": 2,
    "(aaaaa)*": 5,
    "(aaaaaa)*": 3,
    "((a|b|c){4})*": 2,
    "(a(b|c)a)*": 1,
    "(ab|ba)*": 1,
    "(aab)*": 1,
    "(a|b)*aba(a|b)*": 1,
    "c*(ac*ac*ac*)*": 3,
    "(b|ab*a)*c": 2,
    "(a*b)*c(a|b)*": 1,
    "abcabc": 1,
    "(a|b){2,3}c*": 1,
    "((ab)(ab))*": 2,
}
WAYS = {
    "direct": ("cascade", "direct"),
    "series": ("cascade", "series"),
    "one_hot": ("one_hot",),
    "transformation": ("transformation",),
}


def word_problem(generators, symbols=None):
    """A symbol is multiplied to the product so far, which is the answer; the symbols are the generators, or all."""
    group = sorted(elements(generators))
    number = {each: k for k, each in enumerate(group)}
    factors = group if symbols == "all" else generators
    table = [[number[tuple(by[point] for point in each)] for by in factors] for each in group]
    return Machine.from_table(table, table, number[tuple(range(len(group[0])))])


WORD_PROBLEMS = {  # and the degree
    **{f"Z{n}": (word_problem(cyclic(n), "all"), {4: 2, 6: 3}.get(n, n)) for n in range(2, 7)},
    "S3": (word_problem(symmetric(3), "all"), 3),
    "D4": (word_problem(dihedral(4), "all"), 2),
    "A5": (word_problem(alternating(5)), 5),
    "S5": (word_problem(symmetric(5)), 5),
}
ORBITS = semiautomaton(*side_by_side(cyclic(4), cyclic(3)), [0] * 7, [4] * 7)  # a group that moves not all tiles


def check(model, machine, words):
    """In both types the answers are the machine's."""
    for dtype in (torch.float32, torch.bfloat16):
        assert (answers(model.to(dtype), words) == machine.run(words)).all()
    model.float()


THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"  # all of what is sampled else


def machines_of(states):
    """All transition tables over two symbols in which every state is reached, one for each up to isomorphism."""
    found = {}
    for table in itertools.product(range(states), repeat=2 * states):
        machine = Machine.from_table(numpy.array(table).reshape(states, 2), numpy.zeros((states, 2), int)).reachable()
        if machine.n_states == states:
            found[machine.transitions.tobytes()] = machine.transitions
    return list(found.values())


def telling(transitions, number=0):
    """A machine that says all it knows: for odd numbers the state that follows, else the state and the symbol."""
    outputs = numpy.arange(transitions.size).reshape(transitions.shape)
    return Machine.from_table(transitions, transitions if number % 2 else outputs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pattern", EXPRESSIONS)
def test_an_expression_becomes_a_network_that_is_right_on_all_words(pattern, way):
    machine = Machine.from_regex(pattern, "abc")
    model = compile(machine, *WAYS[way])
    check(model, machine, all_words(3, 6))
    if way == "series":
        assert model.config.backbone.degree == EXPRESSIONS[pattern]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("states", "count"), [(1, 1), (2, 12), pytest.param(3, 216, marks=pytest.mark.slow)])
def test_every_machine_of_at_most_three_states_and_two_symbols(states, count, way):
    tables = machines_of(states)
    assert len(tables) == count
    words = all_words(2, 6)
    for number, table in enumerate(tables):
        machine = telling(table, number)
        model = compile(machine, *WAYS[way])
        assert prove(model, machine) >= states - 1  # nothing may lead back to the start
        if THOROUGH or number % 5 == 0:  # 5: outputs of both kinds
            check(model, machine, words)


@pytest.mark.parametrize("way", WAYS)
def test_many_machines_of_four_states_and_two_symbols(way):
    random = numpy.random.default_rng(0)
    words = all_words(2, 7)
    for number in range(1000 if THOROUGH else 100):
        machine = telling(random.integers(4, size=(4, 2)), number)
        model = compile(machine, *WAYS[way])
        assert prove(model, machine) >= 1
        if number % 10 == 0:
            check(model, machine, words)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("states", range(5, 11))
def test_random_machines(states, way):
    for seed in range(2):
        machine = random_machine(seed, states, symbols=2 + seed % 2, outputs=3)
        check(compile(machine, *WAYS[way]), machine, random_words(machine, 4, 60))


@given(machines(states=5))
def test_any_machine(machine):
    for way in WAYS.values():
        words = random_words(machine, 4, 20)
        assert (answers(compile(machine, *way), words) == machine.run(words)).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WORD_PROBLEMS)
def test_word_problems(name, way):
    machine, expected = WORD_PROBLEMS[name]
    model = compile(machine, *WAYS[way])
    check(model, machine, random_words(machine, 4, 80))
    assert model.config.backbone.degree == (expected if way == "series" else machine.n_states)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_full_transformation_monoids(n, way):
    machine = transformations(n)
    model = compile(machine, *WAYS[way])
    check(model, machine, random_words(machine, 8, 80))
    assert model.config.backbone.degree == (min(n, 3) if way == "series" else n)


def test_groups_that_act_on_fewer_points_than_there_are():
    for name in ("C12", "S4", "D6", "A4", "2^3 : PSL(3, 2)"):
        machine = semiautomaton(*GROUPS[name][0], [0] * len(GROUPS[name][0][0]))
        model = compile(machine, "cascade", groups="series")
        check(model, machine, random_words(machine, 4, 80))
        assert model.config.backbone.degree == GROUPS[name][3]


def test_a_group_with_two_orbits():
    (level,) = split(holonomy(ORBITS)).levels
    assert level.orbits == 2
    model = compile(ORBITS, "cascade", groups="series")
    assert model.config.backbone.degree == 3
    check(model, ORBITS, random_words(ORBITS, 4, 80))


def test_a_level_with_groups_of_two_classes():
    machine = random_machine(9, 7)
    levels = [level for level in split(holonomy(machine)).levels if level.points and len(level.parts) > 1]
    assert any(level.level.tiles > degree(machine) for level in levels)
    check(compile(machine, "cascade", groups="series"), machine, random_words(machine, 8, 100))


@given(machines(states=6))
def test_the_degree_is_one_exactly_when_there_is_no_group_and_by_series_the_machines(machine):
    assert (compile(machine, "cascade").config.backbone.degree == 1) == is_group_free(machine)
    assert compile(machine, "cascade", groups="series").config.backbone.degree == degree(machine)


PROVED = {
    **{pattern: Machine.from_regex(pattern, "abc") for pattern in ("(a|b)*abb", "(abc)*", "(aaaa)*", "b*(ab*ab*)*")},
    **{name: WORD_PROBLEMS[name][0] for name in ("Z4", "Z6", "S3", "D4")},
    "T3": transformations(3),
    "orbits": ORBITS,
    "random": random_machine(1, 4),
    "random with groups": random_machine(1, 5),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROVED)
def test_right_on_all_words_of_all_lengths(name, way):
    machine = PROVED[name]
    assert prove(compile(machine, *WAYS[way]), machine) >= machine.minimise().n_states


def test_the_walk_finds_a_wrong_answer():
    machine = Machine.from_regex("(a|b)*abb", "ab")
    with pytest.raises(AssertionError):
        prove(compile(Machine.from_regex("(a|b)*ab", "ab"), "cascade"), machine)


def test_a_cascade_of_too_many_rules_stops_and_says_how_many():
    machine = random_machine(0, 8)
    for groups in ("direct", "series"):
        with pytest.raises(DecompositionTooLarge, match=r"\d\d rules and no end; .*max_rules") as caught:
            compile(machine, "cascade", groups=groups, max_rules=50)
        assert caught.value.reached > 50
    with pytest.raises(DecompositionTooLarge, match="rules"):
        compile(semiautomaton(*GROUPS["2^3 : PSL(3, 2)"][0]), "cascade", groups="series", max_rules=1000)
    assert compile(machine, "one_hot", max_rules=1).config.backbone.degree == 8


@pytest.mark.parametrize("method", ["smallest", "transformation", "one_hot", "cascade"])
def test_a_network_of_too_many_weights_is_not_made(method, monkeypatch):
    monkeypatch.setattr(network_module, "empty_model", None)  # none may be made
    monkeypatch.setattr(transformation_module, "empty_model", None)
    with pytest.raises(DecompositionTooLarge, match=r"weights and no end; .*max_weights"):
        compile(random_machine(0, 8), method, max_weights=100)


def test_a_cascade_of_billions_of_weights_is_refused_before_it_is_planned_to_the_end():
    machine = random_machine(8, 14)  # of fourteen states and two letters
    with pytest.raises(DecompositionTooLarge, match="weights") as caught:
        compile(machine, "cascade")
    assert caught.value.reached > network_module.MAX_WEIGHTS
    refused = sizes(machine)["cascade"]
    assert isinstance(refused, DecompositionTooLarge)
    assert compile(machine).config.backbone.n_layers == 1


@settings(max_examples=20)
@given(machines(states=5))
def test_the_sizes_are_those_of_the_networks_and_the_smallest_is_taken(machine):
    found = sizes(machine)
    assert set(found) == {"transformation", "one_hot", "cascade"}
    for method, size in found.items():
        model = compile(machine, method)
        shape = model.config.backbone
        assert size == Size(model.parameter_count(), shape.n_layers, shape.degree)
    assert compile(machine).parameter_count() == min(size.weights for size in found.values())


@settings(max_examples=20)
@given(machines(states=5), st.sampled_from(["smallest", "transformation", "one_hot", "cascade"]))
def test_a_compiled_network_is_proved_as_it_is(machine, method):
    machine = machine.reachable()
    assert isinstance(certify(compile(machine, method), machine), Proof)


def test_one_unit_of_degree_n_is_any_machine_of_n_states():
    machine = semiautomaton([1, 2, 3, 4, 5, 6, 0], [0, 0, 1, 1, 2, 5, 5])  # says the state that follows
    size = sizes(machine)["transformation"]
    assert (size.layers, size.degree) == (1, 7)
    assert str(size) == "906 weights, one layer, degree 7"


def test_making_a_network_draws_no_random_numbers():
    before = torch.get_rng_state()
    compile(Machine.from_regex("(ab)*", "ab"), "cascade")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_package_gives_functions_where_modules_have_the_same_name():
    for name in automata.__all__:
        module = importlib.import_module(f"latchwork.automata.{name}") if name in ("compile", "certify") else automata
        assert getattr(automata, name) is getattr(module, name)
    assert list(automata.__all__) == sorted(automata.__all__)


def test_an_unknown_method_is_named():
    machine = Machine.from_regex("a", "ab")
    with pytest.raises(ValueError, match=r"method must be one of 'smallest', 'transformation', .*; got 'magic'"):
        compile(machine, "magic")
    with pytest.raises(ValueError, match="groups must be 'direct' or 'series'; got 'magic'"):
        compile(machine, "cascade", groups="magic")
    with pytest.raises(ValueError, match="groups must be 'direct' with method 'one_hot'"):
        compile(machine, "one_hot", "series")
    with pytest.raises(ValueError, match="max_rules must be at least 1; got 0"):
        compile(machine, "cascade", max_rules=0)
