import numpy
import pytest

from latchwork.machines import ACCEPTANCE, Machine
from machine_cases import words


def read(tmp_path, text):
    (tmp_path / "machine.att").write_text(text, encoding="utf-8")
    return Machine.from_att(tmp_path / "machine.att")


def test_an_acceptor_is_read_and_a_missing_edge_rejects(tmp_path):
    machine = read(tmp_path, "0\t1\ta\ta\n1\t0\tb\tb\n0\n")
    assert machine.equivalent(Machine.from_regex("(ab)*")) is None
    assert (machine.symbol_names, machine.output_names) == (("a", "b"), ACCEPTANCE)


@pytest.mark.parametrize(
    "text", ["0 1 a a\r\n1 0 b\r\n\r\n0\r\n", "\ufeff0\t1\ta\n1\t0\tb\tb\n0", "0\n1 0 b b\n0 1 a a"]
)
def test_line_ends_spaces_and_single_symbols_make_no_difference(tmp_path, text):
    assert read(tmp_path, text).equivalent(Machine.from_regex("(ab)*")) is None


def test_symbols_may_be_any_text(tmp_path):
    machine = read(tmp_path, "0\t0\tlog in\tlog in\n0\t0\tê\tê\n0\t1\t<&>\t<&>\n0\n")
    assert machine.symbol_names == ("<&>", "log in", "ê")
    assert machine.run([[2, 1, 0, 2]]).tolist() == [[1, 1, 0, 0]]


def test_states_that_no_word_reaches_are_left_out(tmp_path):
    assert read(tmp_path, "0 0 a a\n7 3 a a\n0\n").n_states == 1


def test_a_machine_written_as_text_is_read_back(tmp_path):
    random = numpy.random.default_rng(0)
    for _ in range(20):
        edges = random.integers(-1, 4, (4, 3))
        accepts = random.random(4) < 0.5
        lines = [f"{q}\t{t}\t{'xyz'[a]}\t{'xyz'[a]}" for (q, a), t in numpy.ndenumerate(edges) if t >= 0]
        lines += [str(q) for q in range(4) if accepts[q]]
        if len({line.split("\t")[2] for line in lines if "\t" in line}) < 3:
            continue
        machine = read(tmp_path, "\n".join(lines))
        for word in words(3, 4):
            state = 0
            for symbol in word:
                state = edges[state, symbol] if state >= 0 else -1
            assert machine.run([word])[0, -1] == (state >= 0 and accepts[state])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have at least one edge"),
        ("0\n1\n", "must have at least one edge"),
        ("0 1\n", r"line 1 must be a state, or a source, a target and a symbol"),
        ("0 1 a b\n", r"line 1 must be a state, or a source, .* got '0 1 a b'"),
        ("0 1 a a 0.5\n", r"line 1 must be a state"),
        ("0 1 a a\n0 2 a a\n", r"line 2: state 0 has two edges by 'a': the automaton must be deterministic"),
        ("0 -1 a a\n", r"line 1: a state must be a whole number below 100,000; got '-1'"),
        ("0 99999999999999999999 a a\n", r"line 1: a state must be a whole number"),
        ("0 1e3 a a\n", r"a state must be a whole number"),
        ("0 ² a a\n", r"a state must be a whole number"),
        ("start 1 a a\n", r"a state must be a whole number"),
        ("0\t1\t\t\n", r"a symbol must have 1 to 100 characters"),
        (f"0 1 {'a' * 101}", r"a symbol must have 1 to 100 characters"),
        ("\n".join(f"0 99999 s{k}" for k in range(200)), r"must make a table of at most 16,777,216 entries"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    (tmp_path / "machine.att").write_bytes(b"0 1 \xff \xff")
    with pytest.raises(ValueError, match="must be text in UTF-8"):
        Machine.from_att(tmp_path / "machine.att")
    with pytest.raises(FileNotFoundError):
        Machine.from_att(tmp_path / "missing.att")
