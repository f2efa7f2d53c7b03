"""Every plan: it resumes bit for bit, leaves one kind of folder, and its model is taken by every command."""

import os
import re
import signal
from pathlib import Path

import pytest
import torch
from pretraining_cases import make_corpus, tiny
from torch.nn import functional as F
from typer.testing import CliRunner

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig, load_model
from latchwork.baselines import make_baseline
from latchwork.cli.main import app
from latchwork.experiments import Experiment
from latchwork.experiments.run import run, run_folder
from latchwork.files import read_json
from latchwork.signals import Stopped
from latchwork.tasks import make_task
from latchwork.training import (
    EvaluationProtocol,
    LengthCurriculum,
    ProofProtocol,
    Scale,
    TrainingProtocol,
    learn_by_length,
    train_until_proved,
)
from latchwork.training.plans.until_proved import UntilProved
from latchwork.training.pretrain import pretrain

DOCS = Path(__file__).parents[2] / "docs"
SMALL = {"d_model": 16, "n_layers": 1, "levels": 3, "output_gate": False, "ffn_dropout": 0.0}
SHAPE = MinMaxRNCLMConfig.small(d_state=8, **SMALL)
PROVED = ProofProtocol(steps=120, rounds=3, tokens=512, length=16, tries=500)
EXPERIMENT = Experiment(
    name="tiny", table="latching", task="latching(2)", model="minmax-s", trainer="minmax", n_layers=1,
    changes={"d_state": 4, **SMALL},
)  # fmt: skip
SMOKE = Scale(
    name="smoke",
    training=TrainingProtocol(sequences=64, validation_sequences=4, epochs=1, min_seeds=1, max_seeds=1),
    evaluation=EvaluationProtocol(length=100, sequences=2, min_seeds=2, max_seeds=2, rows=2),
)


def by_length(folder, **options):
    torch.manual_seed(0)
    model = MinMaxRNC_LM(10, SHAPE)
    curriculum = LengthCurriculum(longest=6, tokens=64, steps=30)
    return model, learn_by_length(model, make_task("latching(2)"), curriculum, folder=folder, **options)


def until_proved(folder, **options):
    attempt = train_until_proved(make_task("fflm(0.8)"), SHAPE, protocol=PROVED, folder=folder, **options)
    return attempt.model, attempt


def signal_at(step):
    def watch(progress):
        if progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return watch


@pytest.mark.parametrize("begin", [by_length, until_proved])
def test_a_run_that_is_stopped_twice_ends_with_the_bits_of_one_that_is_not(begin, tmp_path):
    whole, found = begin(None)
    for step in (3, 11):
        with pytest.raises(Stopped):
            begin(tmp_path / "run", watch=signal_at(step))
    model, again = begin(tmp_path / "run")
    for one, other in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    loaded, finished = begin(tmp_path / "run")  # which is loaded, not trained
    saved = load_model(tmp_path / "run").state_dict()
    assert all(torch.equal(each, saved[name]) for name, each in loaded.state_dict().items())
    if begin is by_length:
        assert [each.steps for each in (found, again, finished)] == [found.steps] * 3
        assert again.history[-1]["length"] == finished.history[-1]["length"] == found.history[-1]["length"]
    else:
        assert [[row["steps"] for row in each.rounds] for each in (again, finished)] == [
            [row["steps"] for row in found.rounds]
        ] * 2
        assert type(finished.result) is type(found.result)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of a tiny run of each plan, by the plan's name."""
    out = tmp_path_factory.mktemp("runs")
    by_length(out / "by_length")
    until_proved(out / "until_proved")
    pretrain(tiny(), make_corpus(out / "corpus"), out / "steps", peak=1.0)
    run(EXPERIMENT, SMOKE, batch_size=64, seed=0, out=out)
    return {
        **{name: out / name for name in ("by_length", "until_proved", "steps")},
        "epochs": run_folder(out, "smoke", EXPERIMENT, 64, 0),
        "corpus": out / "corpus",
    }


PLANS = ("epochs", "by_length", "until_proved", "steps")
TASKS = {"epochs": "latching(2)", "by_length": "latching(2)", "until_proved": "fflm(0.8)"}


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_leaves_the_same_folder(plan, folders):
    folder = folders[plan]
    names = {each.name for each in folder.iterdir()}
    assert {"manifest.json", "metrics.jsonl", "model", "record.json"} <= names
    assert "checkpoints" not in names  # it is finished
    record, manifest = read_json(folder / "record.json"), read_json(folder / "manifest.json")
    assert record["config"] == manifest["config"]
    assert record["config"]["plan"] == plan
    assert record["config"]["model"]["options"] == load_model(folder).config.to_dict()
    assert torch.__version__.startswith(record["manifest"]["versions"]["torch"])  # which may lack "+cu128"
    assert load_model(folder / "model").config == load_model(folder).config


def test_runs_lists_them_with_their_state_and_result(folders, tmp_path):
    result = command("runs", folders["steps"].parent)
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if " finished " in line}
    assert set(rows) == {"by_length", "until_proved", "steps", "smoke/tiny/batch64-seed0"}
    assert "validation loss" in rows["steps"]
    with pytest.raises(Stopped):
        by_length(tmp_path / "half", watch=signal_at(3))
    assert re.search(r"half +by_length +stopped +3", command("runs", tmp_path).stdout)


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")  # torch's, of ONNX
@pytest.mark.parametrize("plan", PLANS)
def test_every_command_takes_the_run_of_every_plan_or_says_why_not(plan, folders, tmp_path):
    folder, text = folders[plan], plan == "steps"
    if not text:
        task = TASKS[plan]
        assert command("evaluate", folder, task, "--length", 50, "--sequences", 2).stdout.startswith(task)
        assert command("certify", folder, task).exit_code in (0, 1, 3)  # proved, wrong, or unknown: an answer
        for words in (["sample", folder], ["eval-lm", folder, "--corpus", folders["corpus"]]):
            result = command(*words)
            assert result.exit_code == 2
            assert "has no tokenizer: it was trained on the symbols of a task, not on text" in result.stderr
        assert command("extract", folder, "--max-states", 2000).exit_code in (0, 1)
        assert command("draw", folder, "--out", tmp_path / "m.svg", "--max-states", 50).exit_code in (0, 1)
        if plan == "until_proved":  # it takes seconds
            assert command("export", folder, "--onnx", tmp_path / "m.onnx").exit_code == 0
    else:
        assert command("sample", folder, "--length", 5, "--prompt", "ab").stdout.startswith("ab")
        assert command("eval-lm", folder, "--corpus", folders["corpus"], "--length", 20).exit_code == 0
        result = command("certify", folder, "latching(2)")
        assert result.exit_code in (2, 3)
        assert result.stderr
        assert "another task trained it" in command("evaluate", folder, "latching(4)").stderr


def test_a_baseline_is_refused_where_states_must_be_finite(tmp_path):
    from latchwork.baselines.registry import save_model

    save_model(tmp_path / "model", make_baseline("gru-s", 10, 1))
    for words in (["certify", tmp_path, "latching(2)"], ["extract", tmp_path], ["draw", tmp_path]):
        result = command(*words)
        assert result.exit_code == 2
        assert "holds a Recurrent" in result.stderr
    assert command("evaluate", tmp_path, "latching(2)", "--length", 20, "--sequences", 2).exit_code == 0


def test_a_name_that_is_nothing_gets_the_nearest_of_the_zoo():
    with pytest.raises(FileNotFoundError, match=r"'latchin-4' is no folder and no network of the zoo; did you"):
        load_model("latchin-4")


def test_the_plan_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "own_plan.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "own_plan.md", "exec"), {"__name__": "own_plan"})
    assert capsys.readouterr().out.startswith("all steps ")
    assert len(code[code.index("class Cosine") : code.index("task = make")].strip().splitlines()) <= 33
    assert (tmp_path / "runs/cosine/record.json").exists()


def test_a_counterexample_is_in_every_batch_and_counts_double_until_it_is_answered():
    task = make_task("fflm(0.8)")
    plan, model = UntilProved(task, PROVED), MinMaxRNC_LM(task.vocabulary, SHAPE)
    word = task.sample("train", 0, 1, 12).tokens[0, :6].tolist()
    plan.pinned = [word]
    for step in range(5):
        ((batch, weight),) = plan.batches(step, 0, 1)
        tokens, targets, pinned = batch
        assert (tokens[0, :6].tolist(), pinned, weight) == (word, 1, 1.0)
    kept = targets != -100
    logits = model(tokens)[0]
    plain = F.cross_entropy(logits[kept], targets[kept])
    wrong = (logits.argmax(-1) != targets)[0] & kept[0]
    extra = F.cross_entropy(logits[0][wrong], targets[0][wrong]) if wrong.any() else 0
    torch.testing.assert_close(plan.loss(model, batch).loss, plain + extra)


def test_two_halves_of_a_batch_are_the_batch():
    task = make_task("fflm(0.8)")
    plan = UntilProved(task, PROVED)
    plan.pinned = [[0, 1, 2, 0]]
    ((whole, _),) = plan.batches(4, 0, 1)
    halves = [plan.batches(4, rank, 2)[0] for rank in (0, 1)]
    assert torch.equal(torch.cat([half[0][0] for half in halves]), whole[0])
    assert sum(weight for _, weight in halves) == pytest.approx(1)
