"""The example that replaces nn.LSTM runs, with either layer."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
SCRIPT = Path(__file__).parents[2] / "examples" / "latch.py"


@pytest.mark.parametrize("kind", ["latch", "lstm"])
def test_the_example_runs_with_either_layer(kind, capsys):
    assert 0 < runpy.run_path(str(SCRIPT))["main"](kind, 2) < 1
    assert kind in capsys.readouterr().out
