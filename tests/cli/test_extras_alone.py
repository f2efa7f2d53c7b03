"""Without the optional packages every command works, or names the extra to install before it starts."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import importlib.util, json, sys
MISSING = set(json.loads(sys.argv[1]))

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] in MISSING else find(name, package)
from typer.testing import CliRunner
from latchwork.cli.main import app
for words in json.loads(sys.argv[2]):
    result = CliRunner().invoke(app, words)
    print(json.dumps([result.exit_code, result.stderr]))
"""
EXTRAS = {
    "triton": ["triton"],
    "hf": ["transformers", "accelerate"],
    "baselines": ["transformers", "xlstm", "mlstm_kernels"],
    "onnx": ["onnx", "onnxscript", "onnxruntime"],
    "automata": ["aalpy", "automata"],  # sympy comes with torch
    "experiments": ["matplotlib", "scipy", "tensorboard"],
    "ray": ["ray"],
    "temporal": ["lark"],
    "lm": ["datasets", "pyarrow", "tokenizers", "zstandard"],
}
WORKS = [
    ["check"],
    ["version", "--all"],
    ["list"],
    ["compile", "(ab)*", "--out", "model"],
    ["compile", "(aaaaaa)*", "--method", "cascade", "--groups", "series"],
    ["extract", "parity"],
    ["certify", "parity", "parity"],
    ["draw", "a*", "--out", "machine.svg"],
    ["explore", "parity", "--out", "page.html"],
    ["pretrain", "--show", "char-1m"],
]
NAMES = {
    "temporal": ["monitor", "x > 0", "trace.csv"],
    "experiments": ["report", "runs", "--out", "report"],
    "experiments ": ["run", "latching-4/minmax-s", "--scale", "smoke", "--out", "out"],
    "hf": ["export", "model", "--hf", "out"],
}


@pytest.mark.slow
def test_a_command_works_without_the_extras_or_names_the_one_that_it_needs(tmp_path):
    (tmp_path / "trace.csv").write_text("x\n1\n")
    missing = sorted({each for modules in EXTRAS.values() for each in modules})
    commands = [*WORKS, *NAMES.values()]
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(missing), json.dumps(commands)],
        cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"},
    ).stdout  # fmt: skip
    results = [json.loads(line) for line in found.splitlines()]
    assert [code for code, _ in results[: len(WORKS)]] == [0] * len(WORKS), results
    for (code, stderr), extra in zip(results[len(WORKS) :], NAMES, strict=True):
        assert code == 2
        assert f"pip install 'latchwork[{extra.strip()}]'" in stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "report").exists()
