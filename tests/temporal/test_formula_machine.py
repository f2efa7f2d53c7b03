"""Formulas as machines: against the robustness, against ltlf2dfa, compiled and certified."""

import re
import shutil
from itertools import product

import numpy
import pytest
import torch
from cases_temporal import formulas
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork.automata import Counterexample, Machine, Proof, certify, compile, degree, extract, is_group_free
from latchwork.temporal import parse, signals
from latchwork.temporal.core import TooLarge

BOUNDS = st.sampled_from([(0, None), (0, None), (1, None), (0, 2), (1, 3), (2, 2)])
LOGIC = formulas(bounds=BOUNDS, atoms=st.sampled_from(signals("a b")), leaves=6)
A, B = signals("a b")
WORDS = [list(word) for length in range(1, 6) for word in product(range(4), repeat=length)]


def holds(formula, word):
    """The truth by the semantics on whole traces: at the last step of past formulas, at the first of others."""
    atoms = {
        "a": torch.tensor([bool(token & 1) for token in word]),
        "b": torch.tensor([bool(token & 2) for token in word]),
    }
    place = -1 if formula.horizon == 0 and not looks_ahead(formula) else 0
    return int(formula.satisfied(atoms)[place])


def looks_ahead(formula):
    return any(node.operator in ("next", "s_next", "eventually", "always", "until") for node in formula.nodes())


@settings(max_examples=60)
@given(LOGIC, st.integers(0, 10**6))
def test_the_machine_says_what_the_formula_means_past_and_future_mixed(formula, seed):
    try:
        machine = Machine.from_formula(formula & (A | ~A) & (B | ~B))  # so that it has both atoms
    except TooLarge:
        return
    generator = numpy.random.default_rng(seed)
    for k in generator.choice(len(WORDS), 25, replace=False):
        word = WORDS[k]
        assert machine.run([word])[0, -1] == holds(formula, word)


@pytest.mark.parametrize(
    ("text", "states"),
    [("b since a", 2), ("once[0:9] a", 11), ("historically (a implies once[0:3] b)", 5), ("always a", 2),
     ("always (a implies eventually b)", 2), ("eventually[0:20] a", 23), ("a until[2:12] b", 15), ("true", 1),
     ("eventually (a and once[1:1] b)", 3)],
)  # fmt: skip
def test_machines_are_small(text, states):
    machine = Machine.from_formula(text)
    assert machine.n_states <= states


@pytest.mark.parametrize(
    "text",
    ["b since a", "historically (a implies once[0:3] b)", "rise(a) and not once[1:4] b", "once (a and prev b)"],
)
def test_a_past_formula_compiles_to_units_of_degree_one(text):
    machine = Machine.from_formula(text)
    assert is_group_free(machine)
    assert degree(machine) == 1
    model = compile(machine, "cascade")
    assert model.config.backbone.degree == 1
    words = numpy.random.default_rng(0).integers(machine.n_symbols, size=(20, 30))
    logits, _ = model(torch.from_numpy(words))
    assert numpy.array_equal(logits.argmax(-1).numpy(), machine.run(words))
    assert extract(model, symbols=machine.n_symbols).equivalent(machine) is None


def test_a_network_is_proved_against_the_text_of_a_formula_or_a_shortest_word_is_found():
    text = "always (req implies once[0:3] ack)"
    model = compile(Machine.from_formula(text))
    found = certify(model, text)
    assert isinstance(found, Proof), found
    wrong = certify(model, parse("always (req implies once[0:2] ack)"))
    assert isinstance(wrong, Counterexample)
    stricter, weaker = Machine.from_formula("always (req implies once[0:2] ack)"), Machine.from_formula(text)
    assert len(wrong.word) == len(stricter.equivalent(weaker))


def test_symbols_are_atoms_of_which_one_is_true_at_a_time():
    machine = Machine.from_formula("not b until a", symbols=["a", "b", "c"])
    assert machine.n_symbols == 3
    assert machine.run([[2, 0, 1], [2, 1, 0], [2, 2, 2]]).tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "symbols", "message"),
    [("x <= 3", None, "without numbers; it has x <= 3"), ("x and $p", None, "without numbers"),
     ("a and b", "a", "speaks of b"),
     ("a", "aa", "different names"), ("eventually[0:99999999] a", None, "bounds are too wide"),
     (" and ".join(f"a{k}" for k in range(13)), None, "at most 12 atoms")],
)  # fmt: skip
def test_what_has_no_machine_is_named(text, symbols, message):
    with pytest.raises(ValueError, match=message):
        Machine.from_formula(text, symbols)


def test_a_machine_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr("latchwork.temporal.machine.MOST_VALUES", 100_000)
    with pytest.raises(TooLarge, match="narrow its bounds"):
        Machine.from_formula("a since[3:40] b and once[5:60] c and historically[1:70] d")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("always (a implies eventually b)", "G(a -> F(b))"), ("a until b", "a U b"), ("s_next s_next a", "X(X(a))"),
     ("next a", "WX(a)"), ("eventually (a and s_next b)", "F(a & X(b))"),
     ("always (a implies s_next b)", "G(a -> X(b))"),
     ("not (a until b) or always a", "!(a U b) | G(a)"), ("eventually always a", "F(G(a))"),
     ("always eventually (a xor b)", "G(F((a & !b) | (!a & b)))")],
)  # fmt: skip
@pytest.mark.skipif(shutil.which("mona") is None, reason="mona is not installed")
def test_the_machine_is_ltlf2dfa_s(ours, theirs, tmp_path, monkeypatch):
    package = pytest.importorskip("ltlf2dfa.parser.ltlf")
    monkeypatch.chdir(tmp_path)  # mona's files
    dot = package.LTLfParser()(theirs).to_dfa()
    machine = Machine.from_formula(ours)
    assert machine.equivalent(from_dot(dot, ["a", "b"][: machine.n_symbols // 2])) is None


def from_dot(dot, atoms):
    """The machine of a graph that ltlf2dfa printed: guards on the edges, final states in double circles."""
    final = {int(state) for state in re.findall(r"\d+", re.search(r"doublecircle\];([^;]*(?:;\s*\d+)*)", dot).group(1))}
    start = int(re.search(r"init -> (\d+)", dot).group(1))
    edges = [(int(a), int(b), guard) for a, b, guard in re.findall(r'(\d+) -> (\d+) \[label="([^"]*)"\]', dot)]
    states = sorted({start, *(a for a, _, _ in edges), *(b for _, b, _ in edges)})
    following = numpy.zeros((len(states), 2 ** len(atoms)), int)
    for token in range(2 ** len(atoms)):
        values = {name: bool(token >> k & 1) for k, name in enumerate(atoms)}
        for a, b, guard in edges:
            text = guard.replace("~", " not ").replace("&", " and ").replace("|", " or ").replace("true", "True")
            if eval(text, {}, values):
                following[states.index(a), token] = states.index(b)
    accepts = numpy.array([int(state in final) for state in states])
    return Machine(following, accepts[following], states.index(start))
