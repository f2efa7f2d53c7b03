"""The example that replaces nn.LSTM runs, with either layer."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
SCRIPT = Path(__file__).parents[2] / "examples" / "latch.py"


@pytest.mark.parametrize("kind", ["latch", "lstm"])
def test_the_example_learns_some_digits_in_two_epochs(kind, capsys):
    assert runpy.run_path(str(SCRIPT))["main"](kind, 2) > 0.12
    assert kind in capsys.readouterr().out
