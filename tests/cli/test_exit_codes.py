"""What a shell sees: exit codes, one line on stderr, streams that are closed or full, a traceback on demand."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from latchwork.cli import list as list_module
from latchwork.cli.main import app
from latchwork.errors import explain
from latchwork.signals import Stopped

COMMAND = [sys.executable, "-m", "latchwork"]


def raising(error, monkeypatch):
    """`latchwork list` that raises an error."""

    def fail():
        raise error

    monkeypatch.setattr(list_module, "Console", fail)
    return CliRunner().invoke(app, ["list"])


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("n must be\nat least 1"), 2, "Error: n must be at least 1"),
        (OSError(28, "No space left on device", "a/b"), 2, "Error: a/b: No space left on device"),
        (MemoryError(), 2, "Error: out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 2, "Error: out of memory: Default"),
        (ImportError("x is missing: pip install y"), 2, "Error: x is missing: pip install y"),
        (ValueError("\x1b[2J\x07"), 2, "Error: \\x1b[2J\\x07"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Stopped(signal.SIGTERM), 143, "interrupted"),
        (AssertionError("a bug"), 70, "Error: internal error, AssertionError: a bug (set LATCHWORK_TRACEBACK=1"),
        (KeyError("a bug"), 70, "Error: internal error, KeyError"),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(error, code, line, monkeypatch):
    result = raising(error, monkeypatch)
    assert result.exit_code == code
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1


def test_a_traceback_is_shown_on_demand(monkeypatch):
    monkeypatch.setenv("LATCHWORK_TRACEBACK", "1")
    result = raising(AssertionError("a bug"), monkeypatch)
    assert result.exit_code == 70
    assert "Traceback (most recent call last)" in result.stderr
    assert "in fail" in result.stderr


def test_an_explanation_is_never_without_end_or_empty():
    assert len(explain(ValueError("x" * 10**6))[0]) < 1100
    assert explain(ValueError())[0] == "ValueError"


# Run in a process whose files may not grow beyond a limit: what a full disk does, for who may not mount one.
FULL = """
import json, resource, sys
from typer.testing import CliRunner
from latchwork.cli.main import app
found = []
for limit, words in json.loads(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    result = CliRunner().invoke(app, words)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    found.append([words, result.exit_code, result.stderr])
print(json.dumps(found))
"""


def test_a_disk_that_is_full_is_one_line_and_leaves_nothing_half_written(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("min and max\n" * 2000)
    prepare = ["data", "prepare", str(text), "--tokenizer", "characters", "--validation-fraction", "0.1", "--out"]
    small = ["steps=2", "model.options.d_model=8", "model.options.d_state=8", "model.options.n_layers=1"]
    small += ["validation.batches=2", "batch.micro=1", "batch.context=8"]
    pretrain = ["pretrain", "char-1m", "--corpus", str(tmp_path / "corpus"), "--peak-tflops", "1"]
    pretrain += [word for each in small for word in ("--set", each)]
    cases = [
        [10**9, [*prepare, str(tmp_path / "corpus")]],
        *([limit, [*prepare, str(tmp_path / f"full{limit}")]] for limit in (0, 600, 5000)),
        *([limit, ["compile", "(ab)*", "--out", str(tmp_path / f"model{limit}")]] for limit in (0, 1500)),
        [0, ["extract", "parity", "--out", str(tmp_path / "machine.json")]],
        [0, ["draw", "(ab)*", "--out", str(tmp_path / "machine.svg")]],
        *([limit, [*pretrain, "--out", str(tmp_path / f"run{limit}")]] for limit in (0, 2000, 10_000)),
    ]
    process = subprocess.run([sys.executable, "-c", FULL, json.dumps(cases)], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    first, *found = json.loads(process.stdout)
    assert first[1] == 0, first
    for words, code, errors in found:
        assert code == 2, (words, errors)
        assert [line.startswith("Error: ") for line in errors.splitlines()].count(True) == 1, (words, errors)
    left = {path.name for path in tmp_path.iterdir()}
    assert not left & {"machine.json", "machine.svg", "full0", "full600", "full5000"}
    assert not [path for path in tmp_path.rglob("record.json")]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_streams_that_are_closed_full_or_not_read_end_without_a_traceback(tmp_path):
    """Real processes, side by side: each pays for its imports."""
    gone = tmp_path / "gone"
    gone.mkdir()
    python = f"{sys.executable} -m latchwork"
    scripts = {
        f"{python} list | true; echo ${{PIPESTATUS[0]}}": ("141",),
        f"{python} list > /dev/full; echo $?": ("2",),
        f"{python} list >&-; echo $?": ("0",),
        f"{python} lst 2>&-; echo $?": ("2",),
        f"{python} lst 2>/dev/full; echo $?": ("2",),
        f"{python} certify parity parity <&- >&- 2>&-; echo $?": ("0",),
        f"cd {gone} && rmdir {gone} && {python} report; echo $?": ("2",),
        f"LANG=C LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0 {python} list latching-4; echo $?": ("0",),
    }
    processes = [
        subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for script in scripts
    ]
    ends = [process.communicate() for process in processes]
    for (output, errors), (script, codes) in zip(ends, scripts.items(), strict=True):
        assert "Traceback" not in errors, script
        assert "Exception ignored" not in errors, script
        assert output.split()[-1] in codes, (script, output, errors)
        assert len(errors.splitlines()) <= 1, (script, errors)
