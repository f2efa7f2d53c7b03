"""A job's record is written once, with its config; another config is an error, and another process is let be."""

import pytest
from filelock import FileLock

from latchwork.experiments.jobs import run_job


def test_a_job_with_a_record_is_not_run_again(tmp_path):
    path = tmp_path / "a" / "0.json"
    first = run_job(path, {"seed": 0}, lambda: {"right": 3})
    assert first["config"] == {"seed": 0}
    assert first["right"] == 3
    assert "commit" in first
    assert run_job(path, {"seed": 0}, lambda: pytest.fail("it was run again")) == first
    assert [each.name for each in path.parent.iterdir() if each.suffix == ".json"] == ["0.json"]


def test_a_record_of_another_config_is_an_error(tmp_path):
    run_job(tmp_path / "0.json", {"seed": 0}, dict)
    with pytest.raises(ValueError, match="seed is 0 there and 1 here"):
        run_job(tmp_path / "0.json", {"seed": 1}, dict)


def test_a_job_that_another_process_is_at_is_let_be(tmp_path):
    with FileLock(tmp_path / ".0.json.lock"):
        assert run_job(tmp_path / "0.json", {}, lambda: pytest.fail("it was run")) is None
