"""Commands that work for hours, as real processes: they save, stop their workers, and say how to resume."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from latchwork.cli.main import app

# `latchwork` with an experiment that is small and never ends, and a corpus whose preparation stops itself.
SCRIPT = """
import os, signal, sys
from latchwork.cli import data, main, run
from latchwork.experiments import Experiment
from latchwork.training import EvaluationProtocol, Scale, TrainingProtocol

tiny = {"d_model": 8, "d_state": 4}
run.EXPERIMENTS = {
    "tiny": Experiment(
        name="tiny", table="latching", task="latching(2)", model="minmax-s", trainer="minmax", n_layers=1, changes=tiny
    )
}
endless = TrainingProtocol(
    sequences=192, validation_sequences=8, epochs=10**6, patience=10**6, min_seeds=2, max_seeds=2, hours=1e6
)
run.SCALES = {"smoke": Scale(name="smoke", training=endless, evaluation=EvaluationProtocol())}
watch = data.Bar.watch

def stop_itself(self, what, done, total):
    watch(self, what, done, total)
    if what == "tokenising":
        os.kill(os.getpid(), signal.SIGTERM)

data.Bar.watch = stop_itself
main.app(sys.argv[1:], prog_name="latchwork")
"""


def start(*words):
    """A process in a session of its own, so that what it leaves behind is found."""
    command = [sys.executable, "-c", SCRIPT, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def session(number):
    """The processes of a session that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, leader = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has just ended
            continue
        if int(leader) == number and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


@pytest.fixture
def sweep(tmp_path):
    """`latchwork run --jobs 2`, with both runs under way; and its run folders."""
    process = start("run", "tiny", "--scale", "smoke", "--jobs", 2, "--out", tmp_path)
    folders = [tmp_path / f"smoke/tiny/batch64-seed{seed}" for seed in (0, 1)]
    try:
        wait_for(lambda: process.poll() is not None or all((each / "progress.json").exists() for each in folders))
        assert process.poll() is None, process.communicate()
        yield process, folders
    finally:
        for each in session(process.pid):
            os.kill(each, signal.SIGKILL)
        process.communicate()


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")


@needs_proc
@pytest.mark.parametrize(
    ("number", "code", "send"),
    [(signal.SIGTERM, 143, os.kill), (signal.SIGINT, 130, os.killpg)],  # a terminal sends SIGINT to all of them
)
def test_a_sweep_that_is_told_to_stop_saves_and_leaves_no_worker(number, code, send, sweep):
    process, folders = sweep
    assert len(session(process.pid)) >= 3
    send(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert "the same command resumes from the last checkpoints" in errors
    assert "Traceback" not in errors
    assert session(process.pid) == []
    assert all(list((each / "checkpoints").iterdir()) for each in folders)


@needs_proc
def test_the_workers_of_a_sweep_that_is_killed_save_and_stop(sweep):
    process, folders = sweep
    process.kill()
    wait_for(lambda: session(process.pid) == [])
    assert all(list((each / "checkpoints").iterdir()) for each in folders)


def test_a_second_sweep_in_the_same_folders_is_an_error_and_damages_nothing(sweep, tmp_path):
    process, folders = sweep
    second = start("run", "tiny", "--scale", "smoke", "--out", tmp_path, "--seeds", 1)
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 1
    holder = json.loads((folders[0] / ".lock.holder").read_text())["process"]
    assert f"tiny batch 64 seed 0 failed: {folders[0]} is in use by process {holder} on " in errors
    assert "Traceback" not in errors
    assert process.poll() is None
    lines = [json.loads(line) for line in (folders[0] / "metrics.jsonl").read_text().splitlines()]
    written = [(line["step"], "gradient_norm" in line) for line in lines]  # of one step: its loss, and an epoch's end
    assert len(set(written)) == len(written)


@needs_proc
def test_a_preparation_that_is_told_to_stop_leaves_no_worker_and_resumes(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("min and max, a latch\n" * 2000)
    words = ["data", "prepare", text, "--out", tmp_path / "out", "--tokenizer", "bytes", "--separator", r"\n"]
    words += ["--jobs", 2, "--validation-documents", 10, "--shard-tokens", 100]
    process = start(*words)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors
    assert errors.strip() == "interrupted: the same command resumes from the shards that are finished"
    wait_for(lambda: session(process.pid) == [])  # multiprocessing's own tracker ends a moment after the command
    assert not (tmp_path / "out").exists()
    assert (tmp_path / ".out.partial").exists()
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    assert not (tmp_path / ".out.partial").exists()


def test_a_second_preparation_of_one_corpus_is_an_error(tmp_path):
    from latchwork.run_lock import run_lock

    text = tmp_path / "text.txt"
    text.write_text("min and max\n" * 9)
    (tmp_path / ".out.partial").mkdir()
    words = ["data", "prepare", str(text), "--out", str(tmp_path / "out"), "--tokenizer", "bytes"]
    with run_lock(tmp_path / ".out.partial"):
        result = CliRunner().invoke(app, [*words, "--validation-fraction", "0.5"])
    assert result.exit_code == 2
    assert f".out.partial is in use by process {os.getpid()}" in result.stderr
    assert not (tmp_path / "out").exists()
