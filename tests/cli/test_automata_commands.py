import pytest
from typer.testing import CliRunner

from latchwork.automata import Machine
from latchwork.cli.main import app

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, [str(each) for each in arguments], env={"COLUMNS": "200"})


def test_compile_extract_and_draw_go_round(tmp_path):
    result = run("compile", "a(b|c)*d", "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "degree 1" in result.stdout
    result = run("extract", tmp_path / "model", "--symbols", 4, "--out", tmp_path / "machine.json")
    assert result.exit_code == 0, result.output
    machine = Machine.load(tmp_path / "machine.json")
    assert machine == Machine.from_regex("a(b|c)*d", "abcd")
    result = run("draw", tmp_path / "machine.json", "--out", tmp_path / "machine.svg")
    assert result.exit_code == 0, result.output
    assert "<svg" in (tmp_path / "machine.svg").read_text()
    assert run("draw", "(ab)*[x-z]", "--out", tmp_path / "other.svg").exit_code == 0
    assert all(f">{letter}" in (tmp_path / "other.svg").read_text() for letter in "abx")


def test_groups_in_series_take_a_smaller_degree_and_nothing_else_is_printed():
    direct, series = (
        run("compile", "(aaaaaa)*", "--method", "cascade", "--groups", groups) for groups in ("direct", "series")
    )
    assert "degree 6" in direct.stdout
    assert "degree 3" in series.stdout
    assert direct.stderr == series.stderr == ""  # the status line is for terminals


def test_tables_larger_than_allowed_are_unknown():
    result = run("certify", "latching-4", "latching(4)", "--max-bytes", 10_000)
    assert result.exit_code == 3
    assert "more than max_bytes, which is 10,000" in result.stderr
    assert "what to do: allow more by max_bytes" in result.stderr


def test_certify_exits_with_what_it_found(tmp_path):
    proved = run("certify", "fflm", "fflm(0.8)")
    assert proved.exit_code == 0, proved.output
    assert "proved: right on all words, of any length, in float32" in proved.stdout
    wrong = run("certify", "latching-4", "latching(4, all)")  # it was proved for other distractors
    assert wrong.exit_code == 1, wrong.output
    assert "and should say" in wrong.stdout
    run("compile", "(ab)*", "--out", tmp_path / "model")
    assert run("certify", tmp_path / "model", "regular((ab)*, ab)").exit_code == 0
    unknown = run("certify", tmp_path / "model", "regular((ab)*, ab)", "--max-states", 1)
    assert unknown.exit_code == 3
    assert "unknown: more than 1 states" in unknown.stderr


def test_a_network_with_too_many_states_exits_with_one(tmp_path):
    assert run("compile", "(ab)*", "--out", tmp_path / "model").exit_code == 0
    result = run("extract", tmp_path / "model", "--max-states", 1)
    assert result.exit_code == 1
    assert "not followed yet" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "a(b"], "pattern must be a regular expression"),
        (["compile", "a{20000}"], "at most 1,000 letters"),
        (["draw", "^a$"], "the whole word is matched, without ^"),
        (["compile", "ab", "--method", "magic"], "'magic' is not one of 'smallest', 'transformation', 'one_hot'"),
        (["compile", "ab", "--groups", "series", "--method", "one_hot"], "must be 'direct' with method 'one_hot'"),
        (["extract", "nowhere"], "nowhere"),
        (["certify", "fflm", "latchin(4)"], "did you mean latching"),
        (["draw", "(ab)*", "--out", "picture.png"], "path must end in .svg"),
    ],
)
def test_bad_usage_says_why(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
