"""The rehearsal of the paper's run, with a model of nothing: every step of it is a command that a user types."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "pretraining_dry_run.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it finds the processes to kill in /proc")
def test_the_rehearsal_goes_through_data_training_kill_resume_samples_and_export(tmp_path):
    pytest.importorskip("tokenizers")
    pytest.importorskip("transformers")
    script = runpy.run_path(str(SCRIPT))
    found = script["rehearse"](tmp_path, script["SIZES"]["tiny"], "ddp")
    assert found["killed with"]
    assert found["steps"] == 12
    assert found["sample"].startswith("w1 w2")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(found["exported"])
