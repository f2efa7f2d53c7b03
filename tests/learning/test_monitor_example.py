"""examples/monitor.py, as a newcomer runs it."""

import importlib.util
from pathlib import Path

import pytest

from latchwork.automata import Proof

PATH = Path(__file__).parents[2] / "examples" / "monitor.py"


@pytest.mark.slow
def test_the_example_learns_the_rule_in_spite_of_wrong_labels(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("monitor_example", PATH)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    learned = example.main(tmp_path / "monitor")
    assert learned.n_states == 4
    assert isinstance(learned.certificate, Proof)
    assert learned.predict(["fail"] * 3 + ["login"] * 1000) == ["open"] * 2 + ["locked"] * 1001
    assert 0.005 < learned.wrong_labels < 0.02
    assert (tmp_path / "monitor" / "index.html").exists()
    assert "Proved" in capsys.readouterr().out
