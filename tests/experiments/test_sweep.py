import json
import os
import signal
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest
from tiny import TINY, job, scale, without_time

from latchwork.experiments.pool import Processes, Ray
from latchwork.experiments.run import run_folder
from latchwork.experiments.sweep import sweep


class Made:
    """A pool that makes up validation accuracies."""

    def __init__(self, accuracies):
        self.accuracies, self.seeds = accuracies, []

    def submit(self, job, folder):
        future = Future()
        self.seeds.append((job["batch_size"], job["seed"]))
        accuracy = self.accuracies[job["seed"]]
        if isinstance(accuracy, Exception):
            future.set_exception(accuracy)
        else:
            future.set_result({"training": {"validation_accuracy": accuracy, "seconds": 3600.0}})
        return future

    def close(self):
        pass


def seeds_run(accuracies, tmp_path, experiment=TINY, **training):
    pool = Made(accuracies)
    done = sweep([experiment], scale(**{"min_seeds": 3, "max_seeds": 10, "hours": 99, **training}), pool, out=tmp_path)
    return [seed for _, seed in pool.seeds], done


def test_seeds_go_on_until_one_more_would_not_be_better(tmp_path):
    assert seeds_run([1.0] * 10, tmp_path)[0] == [0, 1, 2]
    assert seeds_run([0.5, 0.5, 0.5], tmp_path)[0] == [0, 1, 2]
    assert seeds_run([0.2, 0.9, 0.3, 0.99, 0.1, 1.0, *[0.5] * 9], tmp_path)[0] == [0, 1, 2, 3, 4, 5]
    assert len(seeds_run([0.2, 0.9] * 5, tmp_path)[0]) == 10


def test_seeds_end_with_the_time(tmp_path):
    assert seeds_run([0.2, 0.9] * 5, tmp_path, hours=3.5)[0] == [0, 1, 2, 3]


def test_every_batch_size_of_a_trainer_is_tried(tmp_path):
    pool = Made([1.0] * 3)
    sweep([replace(TINY, trainer="xlstm")], scale(min_seeds=3), pool, out=tmp_path)
    assert pool.seeds == [(size, seed) for size in (64, 128) for seed in range(3)]


def test_a_run_that_fails_is_reported_and_ends_its_experiment_alone(tmp_path):
    seeds, done = seeds_run([0.2, RuntimeError("no luck"), 0.4], tmp_path)
    assert seeds == [0, 1, 2]
    assert [str(error) for error in done.errors.values()] == ["no luck"]
    assert sorted(run.seed for run in done.records) == [0, 2]


def test_processes_run_side_by_side_and_return_records(tmp_path):
    pool = Processes(2)
    done = sweep([TINY], scale(epochs=1, min_seeds=2, max_seeds=2), pool, out=tmp_path)
    pool.close()
    assert not done.errors
    assert sorted(record["seed"] for record in done.records.values()) == [0, 1]


def test_a_process_that_is_killed_is_started_again(tmp_path):
    pool = Processes(1)
    folder = run_folder(tmp_path, "smoke", TINY, 64, 0)
    future = pool.submit(job(tmp_path), folder)
    while not (folder / "manifest.json").exists():
        time.sleep(0.01)
    (process,) = pool._running
    os.kill(process.pid, signal.SIGKILL)
    record = future.result()
    pool.close()
    assert process.returncode == -signal.SIGKILL
    assert record["training"]["stopped"] == "all epochs"


def test_a_process_that_fails_says_why(tmp_path):
    pool = Processes(1)
    wrong = replace(TINY, task="latching(0)")
    with pytest.raises(RuntimeError, match="n must be at least 1; got 0"):
        pool.submit(job(tmp_path, wrong), tmp_path).result()
    pool.close()


def test_no_processes_is_an_error():
    with pytest.raises(ValueError, match="jobs must be at least 1; got 0"):
        Processes(0)


def test_ray_that_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'latchwork\[ray\]'"):
        Ray(None, 1, 0)


@pytest.mark.filterwarnings("ignore")
def test_a_local_ray_runs_the_same_survives_a_killed_worker_and_saves_when_it_is_closed(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else they wait for everything else on this machine
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        pool = Ray(None, 1, 0)
        folder = run_folder(tmp_path, "smoke", TINY, 64, 0)
        future = pool.submit(job(tmp_path), folder)
        progress = folder / "progress.json"
        while not progress.exists() and not future.done():
            time.sleep(0.01)
        os.kill(json.loads(progress.read_text())["process"], signal.SIGKILL)
        record = future.result(timeout=600)
        done = sweep([TINY], scale(min_seeds=2, max_seeds=2), pool, out=tmp_path)
        folder = run_folder(tmp_path / "endless", "smoke", TINY, 64, 0)
        endless = pool.submit(job(tmp_path / "endless", epochs=10**6, patience=10**6), folder)
        while not (folder / "progress.json").exists() and not endless.done():
            time.sleep(0.01)
        pool.close()
        assert isinstance(endless.exception(timeout=60), ray.exceptions.TaskCancelledError)
        assert list((folder / "checkpoints").iterdir())
    finally:
        ray.shutdown()
    assert not done.errors
    alone = tmp_path / "alone"
    processes = Processes(1)
    expected = processes.submit(job(alone), run_folder(alone, "smoke", TINY, 64, 0)).result()
    processes.close()
    assert without_time(json.loads(json.dumps(record))) == without_time(expected)
