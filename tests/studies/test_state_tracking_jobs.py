"""Jobs of the state-tracking benchmark: each is run once, by whichever process, and a killed one leaves nothing."""

import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch
from state_tracking_cases import made_up
from state_tracking_jobs import Job, Limits, best_rate, find_followers, read_all, run, run_all, run_once, solved
from state_tracking_tasks import BASELINES, MODELS, PROBLEMS, RATES, Problem, Units, make_model, make_ours, parameters

import state_tracking
from latchwork.tasks import make_task

TINY = Problem("parity", Units("transformation", 2, 2), length=8)
S3, PARITY = PROBLEMS["word_problem(S3)"], PROBLEMS["parity"]


def quiet(line):
    pass


def test_a_job_that_is_finished_is_not_run_again(tmp_path):
    ran = []

    def work(job, limits):
        ran.append(job.file)
        return made_up(job, limits)

    for _ in range(2):
        assert run_all([S3, PARITY], ["minmax"], 2, tmp_path, Limits(), quiet, work) == []
    assert len(ran) == len(set(ran)) == 4
    assert {record["problem"] for record in read_all(tmp_path)} == {"word_problem(S3)", "parity"}


def test_more_seeds_later_are_only_the_new_ones(tmp_path):
    ran = []

    def work(job, limits):
        ran.append(job.seed)
        return made_up(job, limits)

    run_all([S3], ["minmax"], 2, tmp_path, Limits(), quiet, work)
    run_all([S3], ["minmax"], 3, tmp_path, Limits(), quiet, work)
    assert ran == [0, 1, 2]


def test_other_models_are_tried_at_every_rate_and_then_trained_at_the_best(tmp_path):
    ran = []

    def work(job, limits):
        ran.append((job.rate, job.seed))
        return made_up(job, limits, learnt=job.rate == RATES[1], length=3)

    run_all([S3], ["lstm"], 3, tmp_path, Limits(), quiet, work)
    assert ran == [(rate, 0) for rate in RATES] + [(RATES[1], 1), (RATES[1], 2)]


def test_the_best_rate_is_of_the_fewest_steps_then_of_the_longest_words_then_of_the_most_right_answers():
    first, second = (made_up(Job(S3, "lstm", rate, 0)) for rate in (0.1, 0.2))
    second["training"]["steps"] += 1
    assert best_rate([first, second]) == best_rate([second, first]) == 0.1
    first["training"]["learnt"] = False
    assert best_rate([first, second]) == 0.2
    second["training"]["learnt"] = False
    first["training"]["length"], second["training"]["length"] = 9, 8
    assert best_rate([first, second]) == 0.1
    second["training"]["length"] = 9
    first["tests"][0]["accuracy"] = 0.5
    assert best_rate([first, second]) == 0.2


def test_solved_is_learnt_and_without_an_error_in_the_last_network():
    job = Job(S3, "minmax", 5e-3, 0)
    assert solved(made_up(job, wrong=3))  # errors of idle units, which were taken out
    assert not solved(made_up(Job(S3, "lstm", 5e-3, 0), wrong=3))
    assert not solved(made_up(job, learnt=False))


def test_a_job_that_fails_leaves_nothing_and_does_not_stop_the_others(tmp_path):
    def work(job, limits):
        if job.seed == 0:
            raise ValueError("it does not fit")
        return made_up(job, limits)

    failed = run_all([S3], ["minmax"], 3, tmp_path, Limits(), quiet, work)
    assert failed == [f"{Job(S3, 'minmax', 5e-3, 0).file}: ValueError: it does not fit"]
    assert [record["seed"] for record in read_all(tmp_path)] == [1, 2]


def test_every_job_has_a_file_of_its_own():
    jobs = [Job(problem, model, rate, seed) for problem in PROBLEMS.values() for model in MODELS
            for rate in RATES for seed in (0, 1)]  # fmt: skip
    assert len({job.file for job in jobs}) == len(jobs)


@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking beside threads: these run no torch
def test_processes_share_the_work_and_a_killed_one_leaves_its_job_to_the_others(tmp_path):
    records, log = tmp_path / "records", tmp_path / "log"
    records.mkdir()

    def process(name, stuck=False):
        def work(job, limits):
            with log.open("a") as file:
                file.write(f"{name} {job.file}\n")
            time.sleep(600 if stuck else 0.01)
            return made_up(job, limits)

        started = fork.Process(
            daemon=True, target=run_all, args=([S3, PARITY], ["minmax", "gru"], 3, records, Limits(), quiet, work, 0.02)
        )
        started.start()
        return started

    def lines():
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def wait_until(true):
        for _ in range(3000):
            if true():
                return
            time.sleep(0.01)
        raise AssertionError("it took too long")

    fork = multiprocessing.get_context("fork")
    first = process("stuck", stuck=True)
    wait_until(lambda: len(lines()) == 1)
    held = lines()[0][1]
    others = [process("a"), process("b")]
    expected = 2 * (3 + len(RATES) + 2)
    wait_until(lambda: len(list(records.glob("[!.]*.json"))) == expected - 1)
    assert not (records / held).exists()
    os.kill(first.pid, signal.SIGKILL)
    for each in (first, *others):
        each.join(30)
    assert [each.exitcode for each in others] == [0, 0]
    assert len(read_all(records)) == expected
    count = Counter(file for name, file in lines() if name != "stuck")
    assert set(count.values()) == {1}
    assert len(count) == expected
    assert [file for name, file in lines() if name == "stuck"] == [held]
    assert not list(records.glob("*.tmp")) + list(records.glob(".*.tmp"))


def test_one_that_is_stuck_begins_anew_within_the_limits():
    problem = replace(PARITY, patience=2)
    record = run(Job(problem, "minmax", 1e-9, 3), Limits(steps=7, seconds=60, long=16))
    assert [each["steps"] for each in record["stuck"]] == [2, 2, 2]
    assert (record["training"]["stopped"], record["training"]["steps"]) == ("steps", 7)
    record = run(Job(PARITY, "lstm", 1e-9, 3), Limits(steps=5, seconds=60, long=16))
    assert record["stuck"] == []


def test_units_of_a_stuck_trial_that_follow_the_answers_are_kept_and_only_read_anew():
    torch.set_num_threads(1)
    slow = replace(TINY, threshold=1.0, patience=60)  # words never become longer
    record = run(Job(slow, "minmax", 5e-3, 0), Limits(2000, 60.0, 700))
    assert record["stuck"][-1]["follow"] >= 1
    assert all(each["length"] == 2 for each in record["stuck"])
    assert (record["training"]["stopped"], record["training"]["length"]) == ("learnt", 8)
    assert record["training"]["steps"] > sum(each["steps"] for each in record["stuck"])
    assert record["solved"]


def test_a_record_is_whole_or_not_there(tmp_path, monkeypatch):
    job = Job(S3, "minmax", 5e-3, 0)
    monkeypatch.setattr("state_tracking_jobs.json.dumps", lambda record: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_once(job, tmp_path, Limits(), made_up, quiet)
    assert not (tmp_path / job.file).exists()
    monkeypatch.undo()
    assert run_once(job, tmp_path, Limits(), made_up, quiet)
    assert json.loads((tmp_path / job.file).read_text())["seed"] == 0


def test_parity_is_learnt_tested_pruned_and_proved():
    torch.set_num_threads(1)
    record = json.loads(json.dumps(run(Job(TINY, "minmax", 5e-3, 0), Limits(600, 60.0, 700)), allow_nan=False))
    assert record["solved"]
    assert record["training"]["learnt"]
    assert [test["length"] for test in record["tests"]] == [40, 128, 512, 700]
    assert record["proof"]["result"] == "proof"
    assert record["proof"]["units"] in (1, 2)
    assert record["letters"] == 2
    assert record["limits"] == {"steps": 600, "seconds": 60.0, "long": 700}


def test_where_no_unit_follows_the_answers_short_words_are_learnt_before_pruning_and_the_rest_is_proved():
    torch.set_num_threads(1)
    problem = replace(PROBLEMS["last_step(transformations(3))"], length=8)
    record = run(Job(problem, "minmax", 5e-3, 0), Limits(1000, 60.0, 700))
    assert record["training"]["learnt"]
    assert not record["proof"]["follows"]
    assert record["proof"]["practised"] >= 30
    assert record["proof"]["result"] == "proof"
    assert record["proof"]["units"] < 16


def test_of_several_layers_no_unit_is_said_to_follow_alone():
    task = make_task("parity")
    model = make_ours(task.vocabulary, Units("transformation", 2, 2, layers=2))
    assert len(model.backbone.layers) == 2
    assert find_followers(model, *task.sample("validation", 0, 4, 16)) is None


def test_what_is_not_learnt_is_tested_and_neither_pruned_nor_solved():
    record = json.loads(json.dumps(run(Job(TINY, "gru", 1e-3, 0), Limits(3, 60.0, 200)), allow_nan=False))
    assert (record["training"]["stopped"], record["training"]["steps"]) == ("steps", 3)
    assert not record["solved"]
    assert "proof" not in record
    assert [test["length"] for test in record["tests"]] == [40, 128]  # errors: the longest test is left out
    assert record["units"] is None


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer"])
def test_other_models_have_about_as_many_parameters_as_ours(name):
    task = make_task("word_problem(A5)")
    wanted = parameters(make_ours(task.vocabulary, Units("selection", 5)))
    assert parameters(make_model(name, task, Units("selection", 5))) == pytest.approx(wanted, rel=0.1)
    with pytest.raises(ValueError, match=r"model must be one of minmax, .*; got 'elman'"):
        make_model("elman", task, Units("selection", 5))


def test_every_problem_has_a_task_and_units_of_a_known_form():
    for problem in PROBLEMS.values():
        task = make_task(problem.task)
        assert task.name == problem.task
        make_ours(task.vocabulary, problem.units)
    assert set(MODELS) == {"minmax", *BASELINES}


def test_the_command_lists_problems_and_names_what_is_near(tmp_path, capsys):
    assert state_tracking.main(["--list", "--out", str(tmp_path)]) == 0
    assert "word_problem(S5): 16 units of degree 5, selection; records: none" in capsys.readouterr().out
    with pytest.raises(SystemExit) as error:
        state_tracking.main(["word_problem(S4)", "--out", str(tmp_path)])
    assert error.value.code == 2
    assert "did you mean 'word_problem(S" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        state_tracking.main(["parity", "--seeds", "0"])
