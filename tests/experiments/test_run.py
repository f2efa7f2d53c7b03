import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tiny import TINY, job, scale, without_time

from latchwork.experiments.run import run, run_folder

# A worker that saves after every batch, so that a kill cuts it off anywhere.
WORKER = """
import json, sys
from latchwork.experiments import worker
from latchwork.training import loop
loop.SAVE_SECONDS = -1.0
worker.work(json.loads(sys.argv[1]))
"""


def start(values):
    return subprocess.Popen([sys.executable, "-c", WORKER, json.dumps(values)], stderr=subprocess.PIPE, text=True)


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
    assert manifest["config"]["experiment"]["task"] == "latching(2)"
    assert manifest["versions"]["torch"] == torch.__version__
    assert [line["step"] for line in metrics(whole) if "validation_accuracy" in line] == [3, 6]
    assert list((whole / "tensorboard").glob("events*"))
    assert not (whole / "checkpoint.safetensors").exists()
    record = json.loads((whole / "record.json").read_text())
    assert record["scale"] == "smoke"
    assert record["parameters"] == sum(each.numel() for each in TINY.make_model(10).parameters())
    assert len(record["training"]["epochs"]) == 2
    assert record["evaluation"]["length"] == 600
    assert record["evaluation"]["sequences"] in (8, 12)


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
        checkpoint = folder / "checkpoint.safetensors"
        while process.poll() is None and not checkpoint.exists():
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
    one, other = (load_file(each / "best.safetensors") for each in (whole, folder))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert metrics(folder) == metrics(whole)


def test_a_checkpoint_holds_the_place_within_an_epoch(tmp_path, monkeypatch):
    from latchwork.training import loop

    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)
    places = []

    def watch(progress):
        places.append((progress.epoch, progress.batch))
        if places == [(0, 1), (0, 2)]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=watch)
    places.clear()
    places.append("resumed")
    run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=watch)
    assert places[1] == (0, 2)  # the first batch was saved, the second was cut off before its checkpoint


def test_an_epoch_cut_off_after_its_last_batch_is_recorded_as_if_it_had_not_been(tmp_path, monkeypatch):
    from latchwork.training import loop

    falling = replace(TINY, trainer="xlstm")  # whose rate differs from batch to batch
    whole = run(falling, scale(), batch_size=64, seed=0, out=tmp_path / "whole")

    def cut_off(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "SAVE_SECONDS", -1.0)
        patched.setattr(loop, "measure", cut_off)
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
    from latchwork.experiments import run as module

    monkeypatch.setattr(module, "train", None)
    out = whole.parents[3]
    assert run(TINY, scale(), batch_size=64, seed=0, out=out) == json.loads((whole / "record.json").read_text())


def test_how_many_seeds_there_are_does_not_make_another_run(tmp_path):
    def cut_off(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=cut_off)
    run(TINY, scale(min_seeds=3, max_seeds=5), batch_size=64, seed=0, out=tmp_path)


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path):
    def cut_off(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path, watch=cut_off)
    before = (folder_of(tmp_path) / "manifest.json").read_text()
    with pytest.raises(ValueError, match="holds a run of another config"):
        run(TINY, scale(epochs=7), batch_size=64, seed=0, out=tmp_path)
    assert (folder_of(tmp_path) / "manifest.json").read_text() == before


def test_a_broken_record_or_checkpoint_is_named(tmp_path):
    folder = folder_of(tmp_path)
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"not one")
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is not a checkpoint"):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)
    (folder / "record.json").write_text("{")
    with pytest.raises(ValueError, match=r"record\.json must be JSON"):
        run(TINY, scale(), batch_size=64, seed=0, out=tmp_path)


def test_an_ablation_changes_the_model_and_a_wrong_field_is_named():
    plain, changed = TINY.make_model(10), replace(TINY, changes={**TINY.changes, "output_gate": False}).make_model(10)
    assert plain.parameter_count() > changed.parameter_count()
    with pytest.raises(ValueError, match="no field 'outputgate'; did you mean 'output_gate'"):
        replace(TINY, changes={"outputgate": False}).make_model(10)
