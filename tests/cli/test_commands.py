import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

from latchwork.cli.main import app
from latchwork.experiments import EXPERIMENTS

runner = CliRunner()


def test_list_prints_every_experiment():
    result = runner.invoke(app, ["list"], terminal_width=200)
    assert result.exit_code == 0
    found = runner.invoke(app, ["list", "latching-512"], env={"COLUMNS": "160"}).stdout
    assert all(name in found for name in EXPERIMENTS if "latching-512" in name)
    assert "65.2 ± 1.7 %" in found
    assert runner.invoke(app, ["list", "nothing"]).exit_code == 2


def test_the_package_installs_the_command():
    (point,) = entry_points(group="console_scripts", name="latchwork")
    assert point.load() is app
    command = Path(sys.executable).with_name("latchwork")
    found = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "MinMax Recurrent Neural Cascades" in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latching-4/minmax"], "did you mean"),
        (["latching-4/minmax-s", "--scale", "huge"], "is not one of 'smoke', 'laptop', 'paper'"),
        (["latching-4/minmax-s", "--device", "cuda"], "is not here"),
        (["latching-4/minmax-s", "--jobs", "0"], "--jobs"),
    ],
)
def test_bad_usage_exits_with_two_and_says_why(arguments, message, tmp_path):
    result = runner.invoke(app, ["run", *arguments, "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_run_then_report(tmp_path):
    arguments = ["run", "latching-4/minmax-s", "--scale", "smoke", "--out", str(tmp_path / "runs")]
    result = runner.invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "latching-4/minmax-s" in result.stdout
    assert "100.0%" in result.stdout  # the paper's
    assert "batch 64 seed 0: done" in result.stderr
    (record,) = (tmp_path / "runs").rglob("record.json")
    before = record.read_bytes()
    assert json.loads(before)["scale"] == "smoke"
    again = runner.invoke(app, arguments)
    assert again.exit_code == 0
    assert "latching-4/minmax-s batch 64 seed 0: finished before" in again.stderr
    assert record.read_bytes() == before  # not run again
    result = runner.invoke(app, ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "report").iterdir()} >= {"report.md", "report.tex", "report.html"}
    assert runner.invoke(app, ["report", str(tmp_path / "nothing"), "--out", str(tmp_path / "x")]).exit_code == 2


def test_a_budget_can_be_smaller_than_its_scale_and_the_record_says_so(tmp_path):
    arguments = ["run", "latching-4/minmax-s", "--scale", "smoke", "--out", str(tmp_path), "--hours", "0"]
    result = runner.invoke(app, [*arguments, "--batch-size", "32", "--length", "300"])
    assert result.exit_code == 0, result.output
    (record,) = (json.loads(path.read_text()) for path in tmp_path.rglob("record.json"))
    assert record["batch_size"] == 32
    assert record["evaluation"]["length"] == 300
    assert record["training"]["stopped"] == "time limit"
    assert record["training"]["tokens"] < 256 * 512 * 2  # not both epochs


def test_a_run_that_fails_exits_with_one(tmp_path):
    folder = tmp_path / "smoke/latching-4/minmax-s/batch64-seed0"
    (folder / "checkpoints" / "00000001").mkdir(parents=True)
    result = runner.invoke(app, ["run", "latching-4/minmax-s", "--scale", "smoke", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "checkpoints is whole" in result.stderr


@pytest.mark.parametrize(
    ("words", "address"), [(["--ray"], None), (["--ray", "--jobs", "1"], None), (["--ray", "a:1"], "a:1")]
)
def test_ray_is_said_with_or_without_an_address(words, address, monkeypatch, tmp_path):
    from latchwork.cli import run as module

    asked = []

    def refuse(*arguments):
        asked.append(arguments)
        raise ImportError("no Ray here")

    monkeypatch.setattr(module, "Ray", refuse)
    result = runner.invoke(app, ["run", "latching-4/minmax-s", "--out", str(tmp_path), "--threads", "2", *words])
    assert asked == [(address, 2, 0.0)]
    assert result.exit_code == 2
    assert "no Ray here" in result.stderr
