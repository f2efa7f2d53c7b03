"""`latchwork learn` on good files and on hostile ones."""

import json

import pytest
from typer.testing import CliRunner

from latchwork.cli.main import app
from latchwork.learning import Learned

HEADER = "session,step,event,alarm"
COLUMNS = ["--sequence", "session", "--event", "event", "--label", "alarm"]


def alarm(events):
    """Two failures in a row, and then for ever."""
    return ["yes" if "fail fail" in " ".join(events[: k + 1]) else "no" for k in range(len(events))]


def sessions():
    every = [[]]
    for _ in range(4):
        every = [[*each, event] for each in every for event in ("ok", "fail")]
    return [each[:length] for each in every for length in (1, 2, 3, 4)]


def rows():
    for name, events in enumerate(sessions()):
        for step, (event, label) in enumerate(zip(events, alarm(events), strict=True)):
            yield f"s{name}", step, event, label


def run(path, *options, columns=COLUMNS):
    words = ["learn", str(path), *columns, "--out", str(path.parent / "out"), "--method", "merging", *options]
    return CliRunner().invoke(app, words)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("\n".join([HEADER, *(",".join(map(str, row)) for row in rows())]) + "\n")
    return path


def check(result, folder):
    assert result.exit_code == 0, result.stderr
    assert "Proved" in result.stdout
    found = Learned.load(folder)
    assert found.predict(["fail", "ok", "fail", "fail", "ok"]) == ["no", "no", "no", "yes", "yes"]
    return found


def test_a_csv_file_becomes_a_folder_that_can_be_loaded(table):
    check(run(table), table.parent / "out")
    assert "<svg" in (table.parent / "out" / "index.html").read_text()


def test_json_lines_and_parquet_are_read_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    names = HEADER.split(",")
    lines = tmp_path / "events.jsonl"
    lines.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows()))
    check(run(lines), tmp_path / "out")
    parquet.write_table(
        pyarrow.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows()]), tmp_path / "e.parquet"
    )
    check(run(tmp_path / "e.parquet"), tmp_path / "out")


def test_rows_are_sorted_by_the_order_column(table):
    header, *lines = table.read_text().splitlines()
    table.write_text("\n".join([header, *reversed(lines)]))
    check(run(table, "--order", "step"), table.parent / "out")


def test_one_label_a_sequence(tmp_path):
    path = tmp_path / "events.csv"
    lines = [f"{name},{event},{alarm(events)[-1]}" for name, events in enumerate(sessions()) for event in events]
    path.write_text("\n".join(["session,event,alarm", *lines]))
    assert run(path).exit_code == 0
    assert Learned.load(tmp_path / "out").predict(["ok", "fail", "fail"]) == "yes"


def test_several_label_columns_make_one_label(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("\n".join([HEADER + ",colour", *(",".join(map(str, row)) + ",red" for row in rows())]))
    result = run(path, "--label", "colour")
    assert result.exit_code == 0, result.stderr
    assert Learned.load(tmp_path / "out").predict(["fail"]) == [("no", "red")]


def test_the_folder_is_certified_and_drawn(table):
    run(table)
    folder, runner = str(table.parent / "out"), CliRunner()
    proved = runner.invoke(app, ["certify", folder, "--formula", "once (fail and not prev not fail)"])
    assert proved.exit_code == 0, proved.output
    wrong = runner.invoke(app, ["certify", folder, "--formula", "fail"])
    assert (wrong.exit_code, "'fail'" in wrong.output) == (1, True)
    assert runner.invoke(app, ["certify", folder, "--table", f"{folder}/machine.json"]).exit_code == 0
    assert runner.invoke(app, ["certify", folder]).exit_code == 2
    picture = table.parent / "machine.svg"
    assert runner.invoke(app, ["draw", folder, "--out", str(picture)]).exit_code == 0
    assert "fail" in picture.read_text()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", (), "no column"),
        (HEADER, (), "at least one row"),
        ("sesion,event,alarm\n1,a,0", (), "did you mean 'sesion'?"),
        (f"{HEADER}\ns,0,a", (), "row 2"),
        (f"{HEADER}\ns,0,,no", (), "event must not be empty"),
        (f"{HEADER}\ns,0,NaN,no", (), "event must not be empty"),
        (f"{HEADER}\ns,0,a,\n", (), "at least one label"),
        (f"{HEADER}\ns,0,a,no\ns,1,a,yes\n", ("--per", "sequence"), "'s' must have one label"),
        (f"{HEADER}\ns,0,a,no", ("--per", "week"), "auto, step or sequence"),
        (f"{HEADER}\ns,0,a,no", ("--method", "magic"), "both, merging or network"),
        (f"{HEADER}\ns,,a,no", ("--order", "step"), "step must not be empty"),
    ],
)
def test_a_hostile_file_is_one_line_and_exit_code_2(tmp_path, text, options, message):
    path = tmp_path / "events.csv"
    path.write_text(text)
    result = run(path, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


def test_text_that_is_not_utf_8_and_other_endings_are_errors(tmp_path):
    path = tmp_path / "events.csv"
    path.write_bytes(HEADER.encode() + b"\ns,0,\xff,no\n")
    assert "UTF-8" in run(path).stderr
    other = tmp_path / "events.xls"
    other.write_text(HEADER)
    assert "must end in" in run(other).stderr
    assert run(tmp_path / "missing.csv").exit_code == 2
    lines = tmp_path / "events.jsonl"
    lines.write_text("[1]\n")
    assert "JSON object" in run(lines).stderr
    broken = tmp_path / "events.parquet"
    broken.write_bytes(b"PAR1")
    assert "not parquet" in run(broken).stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_folder_is_exported_as_onnx(table):
    pytest.importorskip("onnxscript")
    run(table)
    graph = table.parent / "step.onnx"
    result = CliRunner().invoke(app, ["export", str(table.parent / "out"), "--onnx", str(graph)])
    assert result.exit_code == 0, result.output
    assert graph.stat().st_size > 1000
