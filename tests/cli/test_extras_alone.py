"""With one extra alone every command works, or names the extra to install before it starts."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import venv
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pretraining_cases import make_corpus, tiny

import latchwork
from latchwork import learn
from latchwork.automata import Machine, compile
from latchwork.training.pretrain import pretrain

EXTRAS = ["", *sorted(set(distribution("latchwork").metadata.get_all("Provides-Extra")) - {"dev", "docs", "test"})]
# Each command with the extras that it needs.
COMMANDS = [
    ("check", ""),
    ("version --all", ""),
    ("list", ""),
    ("run latching-4/minmax-s --scale smoke --out out", "experiments"),
    ("run latching-4/gru-s --scale smoke --out out", "experiments"),
    ("run latching-4/mamba-s --scale smoke --out out", "experiments baselines"),
    ("run latching-4/minmax-s --scale smoke --ray --out out", "experiments ray"),
    ("runs runs", ""),
    ("report runs --out out", "experiments"),
    ("evaluate latching-4 latching(4) --length 64 --sequences 2", ""),
    ("learn events.csv --sequence s --event e --label l --out out --method merging", "automata"),
    ("learn events.parquet --sequence s --event e --label l --out out --method merging", "automata lm"),
    ("explore parity --out out", ""),
    ("explore --regex (ab)* --out out", ""),
    ("compile (ab)* --out out", ""),
    ("compile (aaaaaa)* --method cascade --groups series --out out", ""),
    ("extract parity --out out", ""),
    ("certify parity parity", ""),
    ("certify compiled --regex (ab)*", ""),
    ("certify learned --formula once(a)", "temporal"),
    ("draw a* --out out.svg", ""),
    ("draw parity --out out.svg", ""),
    ("monitor x>0 trace.csv --plot out", "temporal"),
    ("monitor x>0 trace.parquet", "temporal lm"),
    ("pretrain --show char-1m", ""),
    ("pretrain tiny.json --corpus corpus --out out --peak-tflops 1", "lm"),
    ("pretrain mamba.json --corpus corpus --out out --peak-tflops 1", "lm baselines"),
    ("sample run --prompt a --length 5", ""),
    ("eval-lm run --corpus corpus --out out", "lm"),
    ("export run --hf out", "hf"),
    ("export parity --onnx out", "onnx"),
    ("data prepare text.txt --tokenizer characters --validation-fraction 0.1 --out out", ""),
    ("data prepare text.parquet --tokenizer characters --validation-fraction 0.1 --out out", "lm"),
    ("data prepare text.txt.zst --tokenizer characters --validation-fraction 0.1 --out out", "lm"),
    ("data prepare text.txt --tokenizer tokenizer.json --validation-fraction 0.1 --out out", "lm"),
    ("data prepare hf:nobody/nothing --tokenizer characters --out out", "lm"),
    ("data verify corpus", ""),
]
OFFLINE = "could not be had from the hub"  # what the data set of nobody says where `datasets` is there
SCRIPT = """
import json, shutil, sys
from pathlib import Path
from typer.testing import CliRunner
from latchwork.cli.main import app
for line in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, line.split())
    written = list(Path().glob("out*"))
    print(json.dumps([result.exit_code, result.stderr, len(written)]))
    for each in written:
        shutil.rmtree(each) if each.is_dir() else each.unlink()
"""


def brought(name, extras=frozenset(), found=None):
    """The distributions that installing one brings along, itself included."""
    found = {} if found is None else found
    try:
        here = distribution(name)
    except PackageNotFoundError:  # for another system
        return found
    key = re.sub(r"[-_.]+", "-", name).lower()
    if extras <= found.get(key, (here, set()))[1] and key in found:
        return found
    found[key] = (here, {*found.get(key, (here, ()))[1], *extras})
    for line in here.requires or ():
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": each}) for each in ("", *extras)):
            brought(needed.name, frozenset(needed.extras), found)
    return found


def environment(folder, extra):
    """A virtual environment with links to what `pip install latchwork[extra]` would bring, and to nothing else."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name, (here, _) in brought("latchwork", frozenset({extra} - {""})).items():
        tops = {file.parts[0] for file in here.files or ()} - {"..", "__pycache__"}
        for top in tops if name != "latchwork" else [each for each in tops if each.endswith(".dist-info")]:
            if not (site / top).exists():
                (site / top).symlink_to(here.locate_file(top))
    (site / "latchwork").mkdir()
    parts = list(Path(latchwork.__file__).parent.iterdir())
    kernel = importlib.util.find_spec("latchwork._kernel")
    for part in {*parts, *([Path(kernel.origin)] if kernel else [])}:
        (site / "latchwork" / part.name).symlink_to(part)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with what the commands read."""
    import pyarrow
    import zstandard
    from pyarrow import parquet
    from tokenizers import Tokenizer, models

    folder = tmp_path_factory.mktemp("inputs")
    (folder / "tiny.json").write_text(json.dumps(tiny().to_dict()))
    options = {"kind": "mamba", "options": {"n_layers": 1, "width": 8}}
    (folder / "mamba.json").write_text(json.dumps({**tiny().to_dict(), "model": options}))
    make_corpus(folder / "corpus")
    pretrain(tiny(), folder / "corpus", folder / "run", device="cpu", peak=1e12)
    record = Path("laptop/latching-4/minmax-s/batch64-seed0")
    shutil.copytree(Path(__file__).parents[2] / "results" / record, folder / "runs" / record)
    compile(Machine.from_regex("(ab)*")).save(folder / "compiled")
    words = ["".join(word) for length in range(1, 6) for word in product("ab", repeat=length)]
    learn(words, [int("a" in word) for word in words], held_out=0, method="merging").save(folder / "learned")
    events = {"s": [row // 3 for row in range(60)], "e": ["a", "b", "b"] * 20, "l": [1, 1, 1] * 20}
    parquet.write_table(pyarrow.table(events), folder / "events.parquet")
    rows = zip(*events.values(), strict=True)
    (folder / "events.csv").write_text("\n".join(["s,e,l", *(",".join(map(str, row)) for row in rows)]))
    parquet.write_table(pyarrow.table({"x": [1.0, 2.0]}), folder / "trace.parquet")
    (folder / "trace.csv").write_text("x\n1\n2\n")
    (folder / "text.txt").write_text("to be or not to be\n" * 9)
    parquet.write_table(pyarrow.table({"text": ["to be", "or not"] * 9}), folder / "text.parquet")
    (folder / "text.txt.zst").write_bytes(zstandard.compress(b"to be or not to be\n" * 9))
    Tokenizer(models.BPE({letter: place for place, letter in enumerate("abcdefgh")}, [])).save(
        str(folder / "tokenizer.json")
    )
    return folder


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="makes an environment of symbolic links")
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_command_works_with_an_extra_alone_or_names_the_one_that_it_needs(extra, inputs, tmp_path):
    python = environment(tmp_path / "venv", extra)
    commands = [each for each in COMMANDS if each[1] or not extra]  # what works with nothing does so with more
    found = subprocess.run(
        [python, "-c", SCRIPT, json.dumps([line for line, _ in commands])],
        cwd=inputs, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    results = [json.loads(line) for line in found.stdout.splitlines()]
    for (line, needed), (code, stderr, written) in zip(commands, results, strict=True):
        asks = re.search(r"pip install 'latchwork\[(\w+)\]'", stderr)
        if asks is None:
            assert code == 0 or OFFLINE in stderr, f"{line}: {code}, {stderr}"
        else:
            assert code == 2
            assert asks[1] in {*needed.split()} - {extra}, f"{line}: {stderr}"
            assert len(stderr.splitlines()) == 1, f"{line}: {stderr}"
            assert not written, line
