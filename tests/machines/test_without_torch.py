import subprocess
import sys

import pytest

NO_TORCH = """
import sys
sys.modules["torch"] = None  # every import of it fails
"""


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_machines_work_where_torch_cannot_be_imported(tmp_path):
    program = f"""{NO_TORCH}
import latchwork
from latchwork.machines import Machine
machine = Machine.from_regex("(ab)*c", "abc")
machine.save({str(tmp_path / "machine.json")!r})
machine = Machine.load({str(tmp_path / "machine.json")!r}).minimise()
machine.draw({str(tmp_path / "machine.svg")!r})
other = Machine.from_formula("b since a", symbols="abc")
from latchwork.machines import words
print(machine.run([[0, 1, 2]]).tolist(), machine.equivalent(other), latchwork.__version__)
"""
    done = run(program)
    assert done.stderr == ""
    assert done.stdout.startswith("[[0, 0, 1]] ")


def test_a_public_name_without_torch_says_what_is_missing():
    done = run(f"{NO_TORCH}\nimport latchwork\nlatchwork.minmax_scan")
    assert done.returncode == 1
    assert "torch" in done.stderr.splitlines()[-1]


def test_the_public_names_are_there_and_are_imported_when_asked_for():
    program = """
import sys
import latchwork
assert "torch" not in sys.modules
assert set(latchwork.__all__) <= set(dir(latchwork))
assert "torch" not in sys.modules
for name in latchwork.__all__:
    assert getattr(latchwork, name).__name__ == name
assert latchwork.minmax_scan is latchwork.ops.minmax_scan
from latchwork import *
print(MinMaxRNC_LM.__name__, use_backend.__name__)
"""
    done = run(program)
    assert (done.stdout, done.stderr) == ("MinMaxRNC_LM use_backend\n", "")


def test_a_name_that_is_not_there_is_an_attribute_error():
    import latchwork

    with pytest.raises(AttributeError, match="module 'latchwork' has no attribute 'nothing'"):
        _ = latchwork.nothing
