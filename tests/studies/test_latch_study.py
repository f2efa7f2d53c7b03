"""The study of Latch: its data are what they say, a run leaves a record, and the page is what the records give."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

STUDY = Path(__file__).parents[2] / "studies" / "latch"
pytest.importorskip("sklearn")


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDY))
    torch.set_num_threads(1)


def load(name):
    return runpy.run_path(str(STUDY / f"{name}.py"))


def test_the_two_made_problems_ask_for_what_they_show():
    problems = load("latch_problems")
    inputs, lengths, targets = problems["recall_batch"](np.random.default_rng(0), 4, 9)
    assert inputs.shape == (4, 11, 17)
    assert torch.equal(inputs[:, 0].argmax(-1), targets)
    assert (inputs[:, 1:-1].argmax(-1) >= 8).all()
    inputs, lengths, targets = problems["adding_batch"](np.random.default_rng(0), 4, 20)
    torch.testing.assert_close((inputs[..., 0] * inputs[..., 1]).sum(1), targets)
    assert inputs[..., 1].sum(1).tolist() == [2.0] * 4
    assert lengths.tolist() == [20] * 4


def test_a_file_of_the_archive_is_read(tmp_path):
    path = tmp_path / "a.ts"
    path.write_text("@problemName a\n@data\n1,2,3:4,5,6:yes\n7:8:no\n")
    sequences, labels = load("latch_problems")["read_ts"](path)
    assert [each.tolist() for each in sequences] == [[[1, 4], [2, 5], [3, 6]], [[7, 8]]]
    assert labels.tolist() == ["yes", "no"]


@pytest.mark.parametrize("kind", ["latch", "lstm+clock", "gru"])
def test_a_run_has_the_parameters_that_are_allowed_and_leaves_a_record(kind):
    record = load("run")["run"]("digits-rows", kind, 0, 0.05)
    assert 18_000 < record["parameters"] <= 20_000
    assert 0 <= record["accuracy"] <= 1
    assert record["steps"] >= 1


def test_the_page_is_what_the_records_give():
    pytest.importorskip("scipy")
    report = load("report")
    assert report["cell"]([0.9, 0.9, 0.96]) == "92.0, 90.0 to 96.0 (3)"
    assert report["cell"]([0.9, 0.9, 0.92, 0.9, 0.96]) == "91.6 ± 3.2 (5)"
    page = report["PAGE"].read_text()
    lines = report["accuracy_table"](report["RESULTS"])
    assert report["fill"](page, "accuracy", lines) == page
    assert report["fill"](page, "choice", report["choice_table"](report["RESULTS"] / "choice.json")) == page
    assert report["fill"](page, "speed", report["speed_table"](report["SPEED"])) == page
