"""Help, completion, lists and versions."""

import os
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from latchwork import zoo
from latchwork.cli.examples import EXAMPLES
from latchwork.cli.main import COMMANDS, app
from latchwork.experiments import EXPERIMENTS
from latchwork.tasks.make import TASKS
from latchwork.training.presets import CONFIGS

runner = CliRunner()


def run(*words):
    return runner.invoke(app, list(words), env={"COLUMNS": "200"})


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_in_its_help(name):
    result = run(name, "--help")
    assert "Examples:" in result.stdout
    assert all(line in result.stdout for line in EXAMPLES[name])


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_has_only_options_that_there_are(line):
    words = shlex.split(line)
    words = words[words.index("latchwork") + 1 :]
    group = typer.main.get_command(app)
    context = group.context_class(group, info_name="latchwork")
    command = group
    while words and hasattr(command, "get_command") and (found := command.get_command(context, words[0])) is not None:
        command, words = found, words[1:]
    assert command is not group
    command.make_parser(command.context_class(command)).parse_args(words)  # an unknown option raises


def test_list_shows_tasks_models_configurations_zoo_and_experiments():
    found = run("list").stdout
    names = [*TASKS, *CONFIGS, *zoo.names(), *EXPERIMENTS, *{each.model for each in EXPERIMENTS.values()}]
    assert [name for name in names if name not in found] == []
    only = run("list", "--only", "zoo").stdout
    assert "word_problem(S3)" in only
    assert "experiment" not in only


def test_version_all_says_what_a_bug_report_needs():
    assert run("version").stdout.startswith("latchwork ")
    assert len(run("version").stdout.splitlines()) == 1
    found = run("version", "--all").stdout
    assert all(name in found for name in ("torch", "python", "kernel", "processor", "[temporal]", "lark"))


def test_a_shell_is_told_what_may_come_next():
    asked = {"_LATCHWORK_COMPLETE": "complete_bash", "COMP_WORDS": "latchwork ex", "COMP_CWORD": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "latchwork"], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    ).stdout
    assert found.split() == ["explore", "extract", "export"]
