import json
from dataclasses import replace

import pytest
import torch
from pretraining_cases import make_corpus, tiny
from typer.testing import CliRunner

from latchwork.cli.main import app
from latchwork.training import engine as loop
from latchwork.training.config import PretrainingConfig
from latchwork.training.display import line
from latchwork.training.engine import DivergedError, Progress
from latchwork.training.presets import find_config

runner = CliRunner()
WIDE = {"COLUMNS": "250"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "c")


@pytest.fixture
def arguments(corpus, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(tiny().to_dict()))
    where = ["--corpus", str(corpus), "--out", str(tmp_path / "run"), "--device", "cpu", "--peak-tflops", "1"]
    return ["pretrain", str(tmp_path / "tiny.json"), *where]


def test_show_prints_the_configuration_with_its_changes():
    result = runner.invoke(app, ["pretrain", "paper-112m", "--show", "--set", "batch.micro=8"])
    assert result.exit_code == 0, result.output
    shown = PretrainingConfig.from_dict(json.loads(result.stdout))
    assert shown.batch.micro == 8
    assert shown.model == find_config("paper-112m").model


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["char-2m"], "did you mean char-1m"),
        (["char-1m"], "must be given"),
        (["char-1m", "--set", "bach.micro=3"], "did you mean 'batch'"),
        (["char-1m", "--corpus", "c", "--out", "r", "--strategy", "tensor"], "'tensor' is not one of 'ddp', 'fsdp'"),
        (["char-1m", "--corpus", "c", "--out", "r", "--device", "tpu"], "must be cpu or cuda"),
        (["char-1m", "--corpus", "nowhere", "--out", "r", "--device", "cpu"], "nowhere holds no corpus"),
    ],
)
def test_bad_usage_exits_with_two_and_says_why(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["pretrain", *words], env=WIDE)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_pretrain_then_again_then_export(arguments, tmp_path):
    result = runner.invoke(app, [*arguments, "--threads", "1"], env=WIDE)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("tiny: ")
    assert "6 steps, 144 tokens" in result.stdout
    assert [row.split(":")[0] for row in result.stderr.splitlines() if row.startswith("step")] == ["step 3", "step 6"]
    again = runner.invoke(app, arguments, env=WIDE)
    assert again.stdout == result.stdout
    assert again.stderr == f"{tmp_path / 'run'} holds this run, finished: its record is shown\n"
    changed = runner.invoke(app, [*arguments, "--set", "seed=1"], env=WIDE)
    assert changed.exit_code == 2
    assert "another config: seed is 0 there and 1 here. Choose another" in changed.stderr

    pytest.importorskip("transformers")
    result = runner.invoke(app, ["export", str(tmp_path / "run"), "--hf", str(tmp_path / "hf")], env=WIDE)
    assert result.exit_code == 0, result.output
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import latchwork.models.huggingface  # noqa: F401 - registers the model
    from latchwork import MinMaxRNC_LM

    tokens = AutoTokenizer.from_pretrained(tmp_path / "hf")("hagf", return_tensors="pt")["input_ids"]
    assert tokens.tolist() == [[7, 0, 6, 5]]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    ours = MinMaxRNC_LM.load(tmp_path / "run" / "model")
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, ours(tokens)[0])
    result = runner.invoke(app, ["export", str(tmp_path / "run"), "--hf", str(tmp_path / "hf")], env=WIDE)
    assert result.exit_code == 2
    assert "must not exist, or be empty" in result.stderr


def test_a_run_that_diverges_exits_with_one(arguments, monkeypatch):
    def diverge(self):
        raise DivergedError(0, float("nan"), 1.0)

    monkeypatch.setattr(loop.Training, "_step", diverge)
    result = runner.invoke(app, arguments, env=WIDE)
    assert result.exit_code == 1
    assert "step 1: the loss is nan" in result.stderr


def test_a_run_that_is_interrupted_says_how_to_go_on(arguments, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Training, "_step", interrupt)
    result = runner.invoke(app, arguments, env=WIDE)
    assert result.exit_code == 130
    assert "the same command resumes" in result.stderr


def test_a_baseline_is_not_exported_but_named(corpus, tmp_path):
    from latchwork.baselines.registry import ModelConfig, make_model, save_model
    from latchwork.interop.huggingface import export_huggingface

    config = ModelConfig(kind="gru", options={"n_layers": 1, "width": 4})
    save_model(tmp_path / "model", make_model(config, 8))
    with pytest.raises(ValueError, match="must hold a MinMax model to be exported; it holds a Recurrent"):
        export_huggingface(tmp_path / "model", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_the_line_of_a_step():
    progress = Progress(3, 3, 9, 2.5, 6e-4, 1.25, 12345.6, 0.456)
    assert line(progress) == "loss 2.5000  lr 6.0e-04  |g| 1.25  12,346 tokens/s  MFU 46%"
    assert "MFU" not in line(replace(progress, utilisation=None))
