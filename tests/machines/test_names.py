import json

import pytest
from hypothesis import given

from latchwork.machines import ACCEPTANCE, Machine
from latchwork.tasks import make_task
from machine_cases import machines, slow_run, words

LOGIN = Machine.from_table(
    [[0, 1, 0], [0, 1, 0]], [[0, 1, 0], [0, 2, 0]], symbol_names=["login", "pay", "quit"], output_names=["ok", "b", "c"]
)


@pytest.mark.parametrize(
    ("machine", "symbols", "outputs"),
    [
        (Machine.from_regex("a(b|c)*"), ("a", "b", "c"), ACCEPTANCE),
        (Machine.from_formula("pay since login", symbols=["login", "pay"]), ("login", "pay"), ACCEPTANCE),
        (Machine.from_formula("a and once b"), ("none", "a", "b", "a & b"), ACCEPTANCE),
        (make_task("regular((ab)*)").machine(), ("a", "b"), ACCEPTANCE),
        (make_task("modular_arithmetic").machine(), tuple("01234+-*"), None),
        (make_task("parity").machine(), None, None),
    ],
)
def test_a_machine_has_the_names_of_what_it_was_made_from(machine, symbols, outputs):
    for each in (machine, machine.minimise(), machine.reachable()):
        assert (each.symbol_names, each.output_names) == (symbols, outputs)


def test_names_are_saved_and_loaded(tmp_path):
    LOGIN.save(tmp_path / "machine.json")
    loaded = Machine.load(tmp_path / "machine.json")
    assert (loaded.symbol_names, loaded.output_names) == (LOGIN.symbol_names, LOGIN.output_names)
    Machine.from_table([[0]], [[0]]).save(tmp_path / "machine.json")
    assert set(json.loads((tmp_path / "machine.json").read_text())) == {"transitions", "outputs", "start"}
    assert Machine.load(tmp_path / "machine.json").symbol_names is None


@pytest.mark.parametrize("names", [["a"], ["a", ""], ["a", "a"], ["a", 3], {"a": 1, "b": 2}, 7, []])
def test_bad_names_in_a_file_are_named(tmp_path, names):
    values = {"transitions": [[0, 0]], "outputs": [[0, 0]], "start": 0, "symbol_names": names}
    (tmp_path / "machine.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"machine\.json: symbol_names must be"):
        Machine.load(tmp_path / "machine.json")


def test_names_do_not_count_when_machines_are_compared():
    plain = Machine.from_table(LOGIN.transitions, LOGIN.outputs)
    assert plain == LOGIN
    assert plain.equivalent(LOGIN) is None


def test_a_product_names_pairs_of_outputs():
    both = Machine.from_regex("a*", "ab").product(Machine.from_regex("b*", "ab"))
    assert both.output_names == ("reject, reject", "reject, accept", "accept, reject", "accept, accept")
    assert both.symbol_names == ("a", "b")


def test_a_word_is_told_in_names():
    assert LOGIN.word([1, 2]) == "pay quit"
    assert Machine.from_regex("(ab)*").word([0, 1, 1]) == "abb"
    assert Machine.from_table([[0, 0]], [[0, 0]]).word([0, 1]) == "0 1"


@given(machines())
def test_in_a_moore_machine_the_output_is_a_matter_of_the_state_that_follows(machine):
    split = machine.moore()
    for word in words(machine.n_symbols, 4):
        assert slow_run(split, word) == slow_run(machine, word)
    outputs = {}
    for following, output in zip(split.transitions.ravel().tolist(), split.outputs.ravel().tolist(), strict=True):
        assert outputs.setdefault(following, output) == output
    assert split.reachable().n_states == split.n_states
