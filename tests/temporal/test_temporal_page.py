"""The code of docs/temporal.md runs, and the example does what it says."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_s_code_runs_and_gives_what_it_says():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "temporal.md").read_text(), re.DOTALL):
        exec(block, names)
    assert names["rule"](names["log"]).round(decimals=4).tolist() == pytest.approx([-0.2, -0.2, -0.2, 0.2])
    assert names["rule"].satisfied(names["log"]).tolist() == [False, False, False, True]
    assert (names["rule"].horizon, names["rule"].memory) == (float("inf"), 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_the_example_finds_the_violation_and_the_limit(tmp_path, capsys):
    runpy.run_path(str(ROOT / "examples" / "monitor_robot.py"))["main"](tmp_path)
    text = capsys.readouterr().out
    assert "robustness of the whole drive: -0.1" in text
    assert "the rule is broken at step" in text
    assert "right on 100% of the drives" in text
    assert (tmp_path / "drive.html").exists()
