"""Two processes with gloo: DDP and FSDP follow one process, and what one form wrote the other goes on with."""

import json
import shutil

import pytest
import torch
import torch.multiprocessing as mp
from pretraining_cases import free_ports, make_corpus
from pretraining_worker import BASELINE, ORTHOGONAL, PLAIN, STREAMS, TWO_PROCESSES, run_two
from safetensors.torch import load_file

from latchwork import load_model
from latchwork.training.checkpoint import steps_of
from latchwork.training.distributed import processes
from latchwork.training.pretrain import pretrain


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "c")


@pytest.fixture(scope="module")
def two(corpus, tmp_path_factory):
    """The folder with all runs of two processes."""
    out = tmp_path_factory.mktemp("two")
    mp.start_processes(
        run_two, args=(str(corpus), str(out), free_ports(len(TWO_PROCESSES))), nprocs=2, start_method="forkserver"
    )
    return out


@pytest.fixture(scope="module")
def one(corpus, tmp_path_factory):
    """The folder with the runs of one process."""
    out = tmp_path_factory.mktemp("one")
    configs = {"plain": PLAIN, "streams": STREAMS, "lstm": BASELINE, "muon": ORTHOGONAL}
    for name, config in configs.items():
        pretrain(config, corpus, out / name, peak=1.0)
    return out


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines for name in ("loss", "validation_loss", "gradient_norm") if name in line]


def assert_same_up_to_rounding(one, other):
    assert losses(one) == pytest.approx(losses(other), rel=2e-4)
    first, second = (load_file(each / "model" / "model.safetensors") for each in (one, other))
    assert set(first) == set(second)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=2e-4, msg=name)


@pytest.mark.parametrize("name", ["ddp", "fsdp", "ddp-to-fsdp", "ddp-stopped"])
def test_two_processes_train_as_one_does(name, one, two):
    assert_same_up_to_rounding(one / "plain", two / name)
    assert json.loads((two / name / "record.json").read_text())["processes"] == 2
    assert load_model(two / name / "model")(torch.zeros(1, 2, dtype=torch.long))[0].shape == (1, 2, 8)


def test_two_processes_validate_on_the_batches_of_one(one, two):
    found = [json.loads((each / "validation" / "00000003.json").read_text()) for each in (one / "plain", two / "ddp")]
    assert found[0]["losses"] == pytest.approx(found[1]["losses"], rel=1e-4)


def test_fsdp_writes_its_parts_as_safetensors_and_ddp_the_whole(two):
    def names(run):
        return {each.name for each in (two / run / "checkpoints" / "00000004").iterdir()}

    assert names("ddp-cut") == {"checkpoint.json", "model.safetensors", "optimizer.safetensors"}
    parts = names("fsdp-cut") - {"checkpoint.json"}
    assert len(parts) == 2
    assert all(each.startswith("shard-") and each.endswith(".safetensors") for each in parts)


@pytest.mark.parametrize("name", ["ddp-cut", "fsdp-cut"])
def test_one_process_goes_on_with_what_two_began(name, one, two, corpus, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(two / name, out)
    assert steps_of(out / "checkpoints")[-1] == 4
    told = []
    pretrain(PLAIN, corpus, out, peak=1.0, tell=told.append)
    assert told[0] == "resuming after step 4"
    assert_same_up_to_rounding(one / "plain", out)


def test_the_states_of_tbptt_are_carried_by_two_processes_and_from_two_to_one(one, two, corpus, tmp_path):
    assert_same_up_to_rounding(one / "streams", two / "streams")
    shutil.copytree(two / "streams-cut", tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "00000002" / "plan.safetensors").exists()
    pretrain(STREAMS, corpus, tmp_path / "run", peak=1.0)
    assert_same_up_to_rounding(one / "streams", tmp_path / "run")
    assert losses(one / "streams") != pytest.approx(losses(one / "plain"), rel=2e-4)


def test_muon_makes_whole_matrices_of_what_fsdp_shares_and_goes_on_with_them(one, two):
    assert_same_up_to_rounding(one / "muon", two / "muon")
    assert losses(one / "muon") != pytest.approx(losses(one / "plain"), rel=2e-4)


def test_a_baseline_is_shared_too(one, two):
    assert_same_up_to_rounding(one / "lstm", two / "lstm")
    assert load_model(two / "lstm" / "model")(torch.zeros(1, 2, dtype=torch.long))[0].shape == (1, 2, 8)


def test_an_odd_environment_names_the_variable(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="WORLD_SIZE must be a number, as torchrun sets it; got 'two'"):
        processes("cpu").__enter__()
