import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pretraining_cases import CutOffError, cut_off_after, make_corpus, tiny, without_time
from pretraining_worker import die_before_the_record, run_quietly
from safetensors.torch import load_file
from torch import nn

from latchwork import MinMaxRNC_LM, load_model
from latchwork.baselines.registry import ModelConfig
from latchwork.data.corpus import Corpus
from latchwork.evaluation.estimate import estimate
from latchwork.signals import Stopped
from latchwork.training import engine as loop
from latchwork.training.checkpoint import steps_of
from latchwork.training.config import (
    BatchConfig,
    CheckpointConfig,
    OptimizerConfig,
    ValidationConfig,
)
from latchwork.training.network import ModelWithLoss
from latchwork.training.plans.steps import Steps
from latchwork.training.pretrain import pretrain


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "c")


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """The folder of a run that was never cut off."""
    out = tmp_path_factory.mktemp("whole") / "run"
    pretrain(tiny(), corpus, out, peak=1e12)
    return out


def metrics(folder):
    return [without_time(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def cut_off(step, corpus, out, config=None):
    """Begin or resume a run in out, which ends after this step."""
    with pytest.raises(CutOffError):
        pretrain(config or tiny(), corpus, out, watch=cut_off_after(step), peak=1.0)


def assert_same_run(one, other):
    first, second = weights(one), weights(other)
    assert set(first) == set(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert metrics(one) == metrics(other)
    for path in (one / "validation").iterdir():
        assert path.read_text() == (other / "validation" / path.name).read_text()


def test_a_run_leaves_metrics_validations_checkpoints_events_a_model_and_a_record(whole, corpus):
    assert steps_of(whole / "checkpoints") == []  # a finished run needs none
    assert [line["step"] for line in metrics(whole)] == [1, 2, 3, 3, 4, 5, 6, 6]
    assert set(metrics(whole)[0]) == {"step", "loss", "learning_rate", "gradient_norm", "tokens"}
    assert [line["tokens"] for line in metrics(whole) if "tokens" in line] == [16, 32, 48, 80, 112, 144]
    validation = json.loads((whole / "validation" / "00000006.json").read_text())
    assert len(validation["losses"]) == 3
    assert validation["mean"] == estimate(validation["losses"]).mean
    record = json.loads((whole / "record.json").read_text())
    assert record["validation"] == {"mean": validation["mean"], "margin": validation["margin"]}
    assert (record["step"], record["tokens"], record["vocabulary"]) == (6, 144, 8)
    model = load_model(whole / "model")
    assert isinstance(model, MinMaxRNC_LM)
    assert record["parameters"] == model.parameter_count()
    assert (whole / "model" / "tokenizer" / "characters.json").exists()
    assert list((whole / "tensorboard").glob("events*"))
    config = json.loads((whole / "manifest.json").read_text())["config"]
    assert record["config"] == config
    assert config["plan"] == "steps"
    assert config["model"]["options"] == model.config.to_dict()  # complete, not what was asked for
    asked = tiny().to_dict()
    assert all(config[name] == asked[name] for name in asked if name != "model")


def test_a_finished_run_is_not_run_again(whole, corpus, monkeypatch):
    monkeypatch.setattr(loop.Training, "run", None)
    assert pretrain(tiny(), corpus, whole) == json.loads((whole / "record.json").read_text())


def test_a_run_of_another_config_or_other_tokens_is_refused_and_left_alone(corpus, tmp_path):
    out = tmp_path / "run"
    cut_off(3, corpus, out)
    before = (out / "manifest.json").read_text()
    with pytest.raises(ValueError, match="holds a run of another config"):
        pretrain(tiny(seed=1), corpus, out)
    with pytest.raises(ValueError, match=r"another config: corpus\.train is \d+ there and \d+ here"):
        pretrain(tiny(), make_corpus(tmp_path / "other", seed=1), out)
    assert (out / "manifest.json").read_text() == before
    assert steps_of(out / "checkpoints") == [2]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 6])
def test_a_run_cut_off_after_a_step_ends_bit_equal(step, whole, corpus, tmp_path):
    out = tmp_path / "run"
    cut_off(step, corpus, out)
    told = []
    pretrain(tiny(), corpus, out, tell=told.append, peak=1.0)
    assert told[0].startswith("step 3" if step < 3 else f"resuming after step {(step - 1) // 2 * 2:,}")
    assert_same_run(whole, out)


CASES = {
    "tbptt": {"tbptt": 4},
    "muon": {"optimizer": OptimizerConfig(learning_rate=1e-2, name="muon", weight_decay=((0, 0.1), (4, 0.0)))},
    "bfloat16": {"precision": "bfloat16"},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "transformer": {"model": ModelConfig(kind="transformer", options={"n_layers": 2, "width": 8, "heads": 2})},
    "lstm": {"model": ModelConfig(kind="lstm", options={"n_layers": 1, "width": 8})},
    "gru": {"model": ModelConfig(kind="gru", options={"n_layers": 1, "width": 8})},
    "mamba": {"model": ModelConfig(kind="mamba", options={"n_layers": 1, "width": 8})},
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_goes_on_bit_equal_and_its_model_can_be_read(name, corpus, tmp_path):
    config = tiny(**CASES[name], checkpoint=CheckpointConfig(every=1, keep=1))
    one, other = tmp_path / "one", tmp_path / "other"
    pretrain(config, corpus, one, peak=1.0)
    for step in (3, 6):  # within a stream of windows, and where the number of rows changes
        cut_off(step, corpus, other, config)
    pretrain(config, corpus, other, peak=1.0)
    assert_same_run(one, other)
    model = load_model(one / "model")
    logits, _ = model(torch.zeros(1, 3, dtype=torch.long))
    assert logits.shape == (1, 3, 8)
    assert not model.training


def test_accumulation_is_one_large_batch(corpus, tmp_path):
    """Without dropout, 2 x 3 rows are 6 rows, up to rounding; 5 rows at a time, the last batch is smaller."""
    losses = []
    for micro, accumulation in ((2, 3), (6, 1)):
        config = tiny(
            model=replace(tiny().model, options={**tiny().model.options, "ffn_dropout": 0.0}),
            batch=BatchConfig(micro=micro, context=8, accumulation=((0, accumulation),)),
        )
        pretrain(config, corpus, tmp_path / str(micro), peak=1.0)
        losses.append([line["loss"] for line in metrics(tmp_path / str(micro)) if "loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_tbptt_is_one_pass_over_the_windows_with_the_state_carried(corpus, tmp_path, monkeypatch):
    """The loss of each step, with weights that do not move, against the model over all windows at once."""
    config = tiny(
        tbptt=3,
        steps=3,
        model=replace(tiny().model, options={**tiny().model.options, "ffn_dropout": 0.0}),
        optimizer=OptimizerConfig(learning_rate=1e-30, weight_decay=((0, 0.0),)),
        batch=BatchConfig(micro=2, context=8, accumulation=((0, 2),)),
    )
    pretrain(config, corpus, tmp_path / "run", peak=1.0)
    from latchwork.training.windows import read_batches

    split = Corpus(corpus).train
    steps = [read_batches(config, split, step) for step in range(3)]
    tokens, targets, reset = (
        torch.cat([torch.cat([getattr(batch, name) for batch in batches]) for batches in steps], 1)
        for name in ("tokens", "targets", "reset")
    )
    assert reset.any()
    model = load_model(tmp_path / "run" / "model")
    logits, _ = model(tokens, reset=reset)
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    expected = [piece.mean().item() for piece in each.split(8, 1)]
    found = [line["loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_model_learns_what_there_is(corpus, tmp_path):
    """Every letter comes twice: half of the next letters can be known."""
    config = tiny(
        steps=150,
        log_every=50,
        validation=ValidationConfig(every=150, batches=20, batch_size=8),
        batch=BatchConfig(micro=8, context=16),
        checkpoint=CheckpointConfig(every=150),
    )
    record = pretrain(config, corpus, tmp_path / "run", peak=1.0)
    uniform = torch.tensor(8.0).log().item()
    assert uniform / 2 - 0.1 < record["validation"]["mean"] < 0.75 * uniform


def test_a_broken_last_checkpoint_is_told_of_and_the_one_before_is_used(whole, corpus, tmp_path):
    out = tmp_path / "run"
    cut_off(5, corpus, out)
    assert steps_of(out / "checkpoints") == [2, 4]
    (out / "checkpoints" / "00000004" / "optimizer.safetensors").unlink()
    told = []
    pretrain(tiny(), corpus, out, tell=told.append, peak=1.0)
    assert "00000004 is broken" in told[0]
    assert told[1] == "resuming after step 2"
    assert_same_run(whole, out)


def test_if_no_checkpoint_is_whole_nothing_is_begun_anew_in_silence(corpus, tmp_path):
    cut_off(3, corpus, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "00000002" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no checkpoint in .* is whole"):
        pretrain(tiny(), corpus, tmp_path / "run", peak=1.0)


def test_a_loss_that_is_not_a_number_stops_the_run_and_leaves_weights_and_checkpoints(corpus, tmp_path, monkeypatch):
    real, trained = Steps.loss, []

    def spoil(self, network, batch):
        trained[:] = network.parameters()
        found = real(self, network, batch)
        return replace(found, loss=found.loss * float("nan")) if self.step == 4 else found

    monkeypatch.setattr(Steps, "loss", spoil)
    with pytest.raises(loop.DivergedError, match=r"step 5: the loss is nan and the norm of its gradient nan"):
        pretrain(tiny(), corpus, tmp_path / "run", peak=1.0)
    assert steps_of(tmp_path / "run" / "checkpoints") == [2, 4]
    saved = load_file(tmp_path / "run" / "checkpoints" / "00000004" / "model.safetensors")
    assert all(each.isfinite().all() for each in (*trained, *saved.values()))


def test_a_gradient_that_is_not_finite_stops_the_run(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(loop.nn.utils, "clip_grad_norm_", lambda *arguments: torch.tensor(float("inf")))
    with pytest.raises(loop.DivergedError, match="norm of its gradient inf"):
        pretrain(tiny(), corpus, tmp_path / "run", peak=1.0)


def test_the_gradient_is_clipped(corpus, tmp_path, monkeypatch):
    config = tiny(steps=1, optimizer=OptimizerConfig(learning_rate=1e-2, clip=1e-3))
    seen = []
    real = torch.optim.AdamW.step

    def look(self, *arguments):
        every = [each.grad for group in self.param_groups for each in group["params"]]
        seen.append(torch.cat([each.flatten() for each in every]).norm().item())
        return real(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", look)
    pretrain(config, corpus, tmp_path / "run", peak=1.0)
    assert seen == [pytest.approx(1e-3, rel=1e-2)]
    assert metrics(tmp_path / "run")[0]["gradient_norm"] > 1e-2  # before clipping


@pytest.mark.slow
def test_a_run_killed_at_20_random_moments_ends_bit_equal_to_one_that_is_not(corpus, tmp_path):
    context = multiprocessing.get_context("forkserver")  # a server that has imported torch: a process starts at once
    heavy = ["latchwork.training.pretrain", "scipy.stats", "torch._dynamo", "torch.utils.tensorboard"]
    context.set_forkserver_preload(heavy)

    def start(out: Path) -> multiprocessing.Process:
        process = context.Process(target=run_quietly, args=(str(corpus), str(out)))
        process.start()
        return process

    draw, out, kills = random.Random(0), tmp_path / "killed", 0
    while kills < 20:
        process = start(out)
        wanted = max(steps_of(out / "checkpoints"), default=0) + draw.randint(0, 8)
        while process.is_alive() and max(steps_of(out / "checkpoints"), default=0) < wanted:
            time.sleep(0.001)
        time.sleep(draw.uniform(0.0, 0.04))  # anywhere between two checkpoints, and within them
        if not process.is_alive():
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills >= 20, f"finished after {kills}"
    last, uninterrupted = start(out), tmp_path / "whole"
    last.join()
    assert last.exitcode == 0
    process = start(uninterrupted)
    process.join()
    assert process.exitcode == 0
    assert_same_run(uninterrupted, out)
    shutil.rmtree(uninterrupted)


def test_a_compiled_run_is_captured_as_one_graph_and_gives_the_same_losses(corpus, tmp_path, monkeypatch):
    """The backend is the one that changes nothing: what is tested is that dynamo takes the network as it is.

    There is no dropout, since a compiled graph draws other masks.
    """
    model = replace(tiny().model, options={**tiny().model.options, "ffn_dropout": 0.0})
    pretrain(tiny(model=model), corpus, tmp_path / "plain", peak=1.0)
    captured = []

    def backend(graph, inputs):
        captured.append(graph)
        return graph.forward

    def compile_whole(self):
        nn.Module.compile(self, backend=backend, fullgraph=True)

    monkeypatch.setattr(ModelWithLoss, "compile", compile_whole)
    pretrain(tiny(compile=True, model=model), corpus, tmp_path / "compiled", peak=1.0)
    assert captured
    runs = (tmp_path / "compiled", tmp_path / "plain")
    found, expected = ([line.get("loss", 0.0) for line in metrics(each)] for each in runs)
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("step", "doing"), [*((step, "") for step in range(1, 7)), (3, "validating"), (6, "validating")]
)
def test_a_signal_saves_at_its_step_and_the_run_ends_bit_equal(step, doing, whole, corpus, tmp_path):
    """It does not wait for a validation, which is made when the run resumes."""
    out, shown = tmp_path / "run", []

    def stop(progress):
        if progress.step == step and progress.text.partition(" ")[0] == doing:
            shown.append(progress.text)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped by SIGTERM"):
        pretrain(tiny(), corpus, out, watch=stop, peak=1.0)
    assert len(shown) == 1  # of the three batches of a validation
    assert steps_of(out / "checkpoints")[-1] == step
    told = []
    pretrain(tiny(), corpus, out, tell=told.append, peak=1.0)
    assert told[0] == f"resuming after step {step}"
    assert_same_run(whole, out)


def test_a_kill_between_the_last_checkpoint_and_the_record_repeats_no_line(whole, corpus, tmp_path):
    process = multiprocessing.get_context("forkserver").Process(
        target=die_before_the_record, args=(str(corpus), str(tmp_path / "run"), torch.get_num_threads())
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert steps_of(tmp_path / "run" / "checkpoints")[-1] == 6
    assert not (tmp_path / "run" / "record.json").exists()
    pretrain(tiny(), corpus, tmp_path / "run", peak=1.0)
    assert_same_run(whole, tmp_path / "run")


def test_two_runs_in_one_folder_are_one_run_and_a_clear_error(whole, corpus, tmp_path):
    def start_another(progress):
        with pytest.raises(BlockingIOError, match=f"run is in use by process {os.getpid()} on "):
            pretrain(tiny(), corpus, tmp_path / "run", peak=1.0)

    pretrain(tiny(), corpus, tmp_path / "run", watch=start_another, peak=1.0)
    assert_same_run(whole, tmp_path / "run")


def test_a_finished_run_of_another_corpus_is_refused(whole, tmp_path, corpus):
    from latchwork.data.shards import write_corpus

    text = Corpus(corpus)
    splits = [[split.document(n)[::-1] for n in range(split.documents)] for split in (text.train, text.validation)]
    write_corpus(tmp_path / "backwards", text.tokenizer, *splits, shard_tokens=500)
    with pytest.raises(ValueError, match=r"another config: corpus\.sha256 is '\w+' there and '\w+' here"):
        pretrain(tiny(), tmp_path / "backwards", whole)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"vocabulary": 9}, ValueError, r"wants a corpus with a vocabulary of 9; .* has 8"),
        (
            {"batch": BatchConfig(micro=10**12, context=8)},
            MemoryError,
            "tiny needs 64,000 GB at least; this machine has",
        ),
        ({"model": replace(tiny().model, options={**tiny().model.options, "n_layers": 10**9})}, MemoryError, "needs"),
        ({"model": ModelConfig(kind="gru", options={"n_layers": 1, "width": 1 << 18})}, MemoryError, "tiny needs"),
    ],
)
def test_what_fits_neither_corpus_nor_machine_is_refused_before_anything_is_made(
    changes, error, message, corpus, tmp_path
):
    with pytest.raises(error, match=message):
        pretrain(tiny(**changes), corpus, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_validation_split_that_is_too_short_is_refused_before_the_first_step(corpus, tmp_path):
    length = len(Corpus(corpus).validation)
    assert length < len(Corpus(corpus).train)
    with pytest.raises(ValueError, match=f"the validation split must have more than {length} tokens; it has {length}"):
        pretrain(tiny(batch=BatchConfig(micro=1, context=length)), corpus, tmp_path / "run")
    assert not (tmp_path / "run").exists()
