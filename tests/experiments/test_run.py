import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tiny import TINY, job, scale, without_time

from latchwork.experiments import run as module
from latchwork.experiments.run import run, run_folder
from latchwork.signals import Stopped
from latchwork.tasks import make_task
from latchwork.training.checkpoint import steps_of
from latchwork.training.plans import epochs

# A worker that saves after every batch, so that a kill cuts it off anywhere.
WORKER = """
import json, sys
from latchwork.experiments import worker
from latchwork.training.plans.epochs import Epochs
Epochs.save_seconds = -1.0
worker.work(json.loads(sys.argv[1]))
"""


def start(values):
    return subprocess.Popen([sys.executable, "-c", WORKER, json.dumps(values)], stderr=subprocess.PIPE, text=True)


def cut_off(*_):
    raise KeyboardInterrupt


def folder_of(out):
    return run_folder(out, "smoke", TINY, 64, 0)


def metrics(folder):
    return [without_time(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that was never cut off."""
    out = tmp_path_factory.mktemp("whole")
    run(TINY, scale(), batch_size=64, seed=0, out=out)
    return folder_of(out)


def test_a_run_leaves_a_folder_with_manifest_metrics_events_weights_and_record(whole):
    manifest = json.loads((whole / "manifest.json").read_text())
    assert set(manifest) == {"config", "versions", "commit", "hardware", "date"}
    assert manifest["config"]["seed"] == 0
    assert manifest["config"]["task"] == "latching(2)"
    assert manifest["config"]["model"]["options"] == TINY.make_model(10).config.to_dict()  # complete
    assert manifest["versions"]["torch"] == torch.__version__
    assert [line["step"] for line in metrics(whole) if "validation_accuracy" in line] == [3, 6]
    assert list((whole / "tensorboard").glob("events*"))
    assert not (whole / "checkpoints").exists()
    record = json.loads((whole / "record.json").read_text())
    assert record["config"] == manifest["config"]
    assert "published" not in record
    assert record["scale"] == "smoke"
    assert record["parameters"] == sum(each.numel() for each in TINY.make_model(10).parameters())
    assert len(record["training"]["epochs"]) == 2
    assert record["evaluation"]["length"] == 600
    assert record["evaluation"]["sequences"] in (8, 12)
    assert record["evaluation"]["stopped"] in ("sure", "all data sets")


def test_the_constant_is_that_of_the_sequences_that_were_evaluated(whole):
    evaluation = json.loads((whole / "record.json").read_text())["evaluation"]
    task, answers = make_task("latching(2)"), torch.zeros(10, dtype=torch.long)
    for seed in range(len(evaluation["data_sets"])):
        for first in (0, 3):  # four sequences, three at a time
            targets = task.sample("evaluation", seed * 10_007 + first, min(3, 4 - first), 600).targets
            answers += targets.flatten().bincount(minlength=10)
    assert evaluation["constant"] == float(answers.max() / answers.sum())
    assert evaluation["expected_constant"] == 0.5
    sums = evaluation["by_sequence"]
    assert sums["asked"] == int(answers.sum())
    assert sums["right"] == sum(each[3] for each in evaluation["positions"])


def test_an_evaluation_that_is_out_of_time_says_so(tmp_path):
    short = scale()
    short = replace(short, evaluation=replace(short.evaluation, min_seeds=3, hours=0.0))
    assert run(TINY, short, batch_size=64, seed=0, out=tmp_path)["evaluation"]["stopped"] == "time limit"


def test_the_events_hold_the_metrics(whole):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(whole / "tensorboard"))
    events.Reload()
    record = json.loads((whole / "record.json").read_text())
    found = [event.value for event in events.Scalars("validation_accuracy")]
    assert found == pytest.approx([each["validation_accuracy"] for each in record["training"]["epochs"]])


def test_a_run_that_is_killed_ends_bit_equal_to_one_that_is_not(whole, tmp_path):
    values = job(tmp_path)
    folder = folder_of(tmp_path)
    killed = 0
    for delay in (0.0, 0.05, 0.2):
        process = start(values)
        while process.poll() is None and not steps_of(folder / "checkpoints"):
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed, "no process was killed while it ran"
    process = start(values)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    records = [json.loads((each / "record.json").read_text()) for each in (whole, folder)]
    assert without_time(records[1]) == without_time(records[0])
    one, other = (load_file(each / "model" / "model.safetensors") for each in (whole, folder))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert metrics(folder) == metrics(whole)


def test_an_epoch_cut_off_after_its_last_batch_is_recorded_as_if_it_had_not_been(tmp_path, monkeypatch):
    falling = replace(TINY, trainer="xlstm")  # whose rate differs from batch to batch
    whole = run(falling, scale(), batch_size=64, seed=0, out=tmp_path / "whole")

    with monkeypatch.context() as patched:
        patched.setattr(epochs.Epochs, "save_seconds", -1.0)
        patched.setattr(epochs, "measure", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run(falling, scale(), batch_size=64, seed=0, out=tmp_path)
    assert without_time(run(falling, scale(), batch_size=64, seed=0, out=tmp_path)) == without_time(whole)


def test_two_runs_of_one_seed_are_identical_and_of_two_seeds_are_not(whole, tmp_path):
    first = json.loads((whole / "record.json").read_text())
    same = run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)
    other = run(TINY, scale(), batch_size=64, seed=1, out=tmp_path)
    assert without_time(json.loads(json.dumps(same))) == without_time(first)
    assert other["training"]["epochs"][0]["loss"] != first["training"]["epochs"][0]["loss"]


def test_a_finished_run_is_not_run_again(whole, monkeypatch):
    monkeypatch.setattr(module, "train", None)
    out = whole.parents[3]
    assert run(TINY, scale(), batch_size=64, seed=0, out=out) == json.loads((whole / "record.json").read_text())


def test_how_many_seeds_there_are_does_not_make_another_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=cut_off)
    run(TINY, scale(min_seeds=3, max_seeds=5), batch_size=64, seed=0, out=tmp_path)


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=cut_off)
    before = (folder_of(tmp_path) / "manifest.json").read_text()
    with pytest.raises(ValueError, match=r"another config: scale\.training\.epochs is 2 there and 7 here\. Choose an"):
        run(TINY, scale(epochs=7), batch_size=64, seed=0, out=tmp_path)
    assert (folder_of(tmp_path) / "manifest.json").read_text() == before


def test_a_broken_record_or_checkpoint_is_named(tmp_path):
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    (folder / "checkpoints" / "00000001").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"no checkpoint in .*checkpoints is whole"):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)
    (folder / "record.json").write_text("{")
    with pytest.raises(ValueError, match=r"record\.json must be JSON"):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)


def test_an_ablation_changes_the_model_and_a_wrong_field_is_named():
    plain, changed = TINY.make_model(10), replace(TINY, changes={**TINY.changes, "output_gate": False}).make_model(10)
    assert plain.parameter_count() > changed.parameter_count()
    with pytest.raises(ValueError, match="no field 'outputgate'; did you mean 'output_gate'"):
        replace(TINY, changes={"outputgate": False}).make_model(10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": replace(scale(), evaluation=replace(scale().evaluation, length=601))}, "evaluation.length is 600"),
        ({"scale": scale(epochs=3)}, "scale.training.epochs is 2 there and 3 here"),
        ({"threads": 2}, "threads is 1 there and 2 here"),
        ({"experiment": replace(TINY, n_layers=2)}, "model.options.backbone.n_layers is 1 there and 2 here"),
    ],
)
def test_a_finished_run_of_another_config_is_an_error_that_says_what_differs(changes, message, whole):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    asked = {"experiment": TINY, "scale": scale(), "batch_size": 64, "seed": 0, "out": whole.parents[3], **changes}
    with pytest.raises(ValueError, match=re.escape(message)):
        run(**asked)
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_a_run_that_its_time_limit_stopped_is_not_the_answer_to_another_limit(tmp_path, monkeypatch):
    short = run(TINY, scale(hours=0), batch_size=64, seed=0, out=tmp_path)
    assert short["training"]["stopped"] == "time limit"
    assert run(TINY, scale(hours=0), batch_size=64, seed=0, out=tmp_path) == json.loads(json.dumps(short))
    with pytest.raises(ValueError, match=r"its time limit stopped: hours is 0 there and 1 here"):
        run(TINY, scale(hours=1), batch_size=64, seed=0, out=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(module, "evaluate_until_sure", None)
        with pytest.raises(TypeError):  # trained, and not evaluated
            run(TINY, scale(hours=0), batch_size=64, seed=1, out=tmp_path)
    with pytest.raises(ValueError, match=r"its time limit stopped"):
        run(TINY, scale(hours=1), batch_size=64, seed=1, out=tmp_path)


def test_a_record_alone_answers_for_its_own_config_and_for_no_other(whole, tmp_path):
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    shutil.copy(whole / "record.json", folder)
    asked = {"experiment": TINY, "scale": scale(), "batch_size": 64, "seed": 0, "out": tmp_path}
    assert run(**asked) == json.loads((whole / "record.json").read_text())
    with pytest.raises(ValueError, match="threads is 1 there and 2 here"):
        run(**asked, threads=2)
    assert [each.name for each in folder.iterdir()] == ["record.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("batch", range(1, 6))
def test_a_signal_saves_and_the_run_ends_bit_equal(batch, number, whole, tmp_path):
    seen = []

    def watch(progress):
        if progress.text.startswith("epoch"):  # and not a validation
            seen.append(progress.step)
            if len(seen) == batch:
                os.kill(os.getpid(), number)

    with pytest.raises(Stopped) as stopped:
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=watch)
    assert stopped.value.number == number
    assert len(seen) == batch  # it did not go on
    run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=lambda progress: seen.append(progress.step))
    assert seen[batch] == batch + 1  # no batch came twice
    assert metrics(folder_of(tmp_path)) == metrics(whole)
    one, other = (load_file(each / "model" / "model.safetensors") for each in (whole, folder_of(tmp_path)))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_two_runs_in_one_folder_are_one_run_and_a_clear_error(whole, tmp_path):
    def start_another(progress):
        with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}"):
            run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)

    run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=start_another)
    assert metrics(folder_of(tmp_path)) == metrics(whole)


def test_a_run_cut_off_after_its_last_checkpoint_repeats_no_line(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(module, "measure", cut_off)  # on training sequences, after the training
        with pytest.raises(KeyboardInterrupt):
            run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)
    run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)
    assert metrics(folder_of(tmp_path)) == metrics(whole)


def test_shorter_sequences_are_evaluated_where_answers_are_asked_for_at_the_end_only(tmp_path):
    evaluation = replace(scale().evaluation, shorter=((50, 6), (100, 3)))
    late = replace(TINY, task="induction_heads(2)")
    records = [
        run(each, replace(scale(), evaluation=evaluation), batch_size=64, seed=0, out=tmp_path / each.task)
        for each in (late, TINY)
    ]
    assert [row[:2] for row in records[0]["evaluation"]["shorter"]] == [[50, 6], [100, 3]]
    assert records[1]["evaluation"]["shorter"] == []
