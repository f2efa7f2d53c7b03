"""`latchwork monitor`, from files and from standard input."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from latchwork.cli.main import app

LOG = "time,speed,limit,alarm\n" + "".join(f"{t},{speed},10,{alarm}\n" for t, (speed, alarm) in enumerate(
    [(5, "false"), (8, "false"), (12, "false"), (11, "true"), (9, "true"), (7, "false")]
))  # fmt: skip


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def run(*arguments, given=None):
    return CliRunner().invoke(app, ["monitor", *map(str, arguments)], input=given)


@pytest.mark.parametrize(
    ("formula", "code", "answer"),
    [
        ("speed <= limit", 1, "violated first at step 2, robustness -2; at 2 of 6 steps; lowest -2"),
        ("speed <= limit + 5", 0, "satisfied at all 6 steps, lowest robustness 3"),
        ("always (speed > limit implies eventually[0:2] alarm)", 0, "satisfied, robustness 1"),
        ("always speed <= limit", 1, "violated, robustness -2; certain at step 2"),
        ("eventually speed >= 13", 1, "violated, robustness -1; by the end of the trace, not before"),
    ],
)
def test_the_answer_says_where_and_the_exit_code_whether(formula, code, answer, log):
    found = run(formula, log)
    assert (found.exit_code, found.stdout) == (code, f"{log}: {answer}\n")


def test_parquet_is_read_too(log, tmp_path):
    csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(csv.read_csv(log), tmp_path / "log.parquet")
    for text in ("speed <= limit", "always (speed > limit implies alarm)"):
        one, two = run(text, log), run(text, tmp_path / "log.parquet")
        assert one.exit_code == two.exit_code == 1
        assert one.stdout.partition(":")[2] == two.stdout.partition(":")[2].replace(".parquet", ".csv")


def test_the_plot_is_a_page_with_every_subformula_and_the_violation(log, tmp_path):
    found = run("speed <= limit and once[0:2] alarm", log, "--plot", tmp_path / "out.html")
    assert found.exit_code == 1
    text = (tmp_path / "out.html").read_text()
    assert text.count("<svg") == 3 + 4 - 1  # speed, limit, alarm; speed <= limit, once[0:2] alarm, the whole
    assert "violated first at step 0" in text
    assert "http" not in text
    assert "<script" not in text


def test_the_plot_marks_where_a_formula_without_end_was_violated(log, tmp_path):
    run("always speed <= limit", log, "--plot", tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text()
    assert "violated first at step 2" in text
    for picture in re.findall("<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(picture)


def test_standard_input_is_answered_line_by_line():
    command = [sys.executable, "-m", "latchwork", "monitor", "x <= 1 since y >= 1", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        process.stdin.write("x,y\n0,2\n")
        process.stdin.flush()
        assert process.stdout.readline() == "step\trobustness\tverdict\n"
        assert process.stdout.readline() == "0\t1\tsatisfied\n"  # while the stream is open
        process.stdin.write("3,0\n")
        process.stdin.flush()
        assert process.stdout.readline() == "1\t-1\tviolated\n"
        process.stdin.close()
        assert process.wait() == 1


def test_a_stream_of_a_formula_that_looks_ahead_comes_late_and_in_whole():
    found = run("eventually[0:2] x", "-", given="x\n-1\n-2\n3\n-4\n")
    assert found.stdout.splitlines()[1:] == [
        "0\t3\tsatisfied",
        "1\t3\tsatisfied",
        "2\t3\tsatisfied",
        "3\t-4\tviolated",
    ]
    assert found.exit_code == 1
    found = run("always x", "-", given="x\n1\n-2\n3\n")
    assert found.stdout.splitlines()[1:] == ["0\t1\topen", "1\t-2\tviolated", "2\t-2\tviolated"]


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [("x <= ", "x\n1\n", "expected a name or a number"), ("x <= $a", "x\n1\n", "thresholds"),
     ("z", "x\n1\n", "speaks of z; the columns are x"), ("x", "x\none\n", "line 2: x must be a number; got 'one'"),
     ("x and y", "x,y\n1\n", "line 2: 2 columns expected, got 1"), ("x", "", "columns are none"),
     ("x", "x,x\n1,2\n", "the column x must be there once; it is there 2 times")],
)  # fmt: skip
def test_bad_usage_ends_with_two_and_says_why(text, given, message, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(given)
    for found in (run(text, path), run(text, "-", given=given)):
        assert found.exit_code == 2
        assert message.split(":")[0] in " ".join(found.output.replace("│", "").split())
    assert run("x", tmp_path / "none.csv").exit_code == 2


def test_the_place_of_a_fault_in_the_formula_is_shown(tmp_path):
    found = run("x <= <= 3", tmp_path / "any.csv")
    assert found.stderr.splitlines() == [
        "Error: FORMULA, line 1, column 6: expected a name or a number; got '<='", "  x <= <= 3", "       ^"
    ]  # fmt: skip


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbfx\n1\n")
    assert run("x", path).exit_code == run("x", "-", given=path.read_bytes().decode()).exit_code == 0


def test_a_missing_value_is_unknown(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text('x\n1\n""\n2\n')
    found = run("x", path)
    assert (found.exit_code, found.stdout) == (2, f"{path}: unknown from step 1 on, a value is missing\n")
