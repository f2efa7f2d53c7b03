"""Every command with hostile arguments: no traceback, one clear line, the right exit code, and nothing half-written."""

import os
import sys

import pytest
import torch
from typer.testing import CliRunner

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.cli.main import app
from latchwork.data.shards import write_corpus
from latchwork.data.tokenizers import Characters, save_tokenizer
from latchwork.machines.machine import Machine

LETTERS = "abcdefgh"
EXPERIMENT = "latching-4/minmax-s"
LONG = "x" * 5000
HUGE = str(10**30)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Good input and bad, by name; in an argument {name} is its path."""
    root = tmp_path_factory.mktemp("world")
    (root / "text.txt").write_text("min and max, a latch.\n" * 30)
    (root / "binary.txt").write_bytes(bytes(range(256)) * 9)
    (root / "binary.json").write_bytes(b"\x80\x00\xff" * 99)
    (root / "binary.toml").write_bytes(b"\x80\x00\xff" * 99)
    (root / "empty.txt").write_text("")
    (root / "half.json").write_text('{"a": ')
    (root / "list.json").write_text("[1, 2]")
    (root / "other.json").write_text('{"a": 1}')
    (root / "deep.json").write_text("[" * 200_000)
    (root / "numbers.json").write_text('{"name": 3, "steps": "many", "model": []}')
    (root / "half.toml").write_text("name = ")
    (root / "file").write_text("a file")
    (root / "folder").mkdir()
    (root / "folder.json").mkdir()
    (root / "loop").symlink_to(root / "loop")
    (root / "dangling").symlink_to(root / "nowhere")
    (root / "records/run").mkdir(parents=True)
    (root / "records/run/record.json").write_text("[]")
    (root / "model").mkdir()
    (root / "model/config.json").write_text("{}")
    (root / "model/model.safetensors").write_bytes(b"\x00" * 50)
    write_corpus(root / "corpus", Characters(LETTERS), [[0, 1, 2, 3] * 9] * 9, [[3, 2, 1] * 40])
    write_corpus(root / "other", Characters("abc"), [[0, 1, 2] * 9] * 9, [[2, 1] * 20])
    model = MinMaxRNC_LM(len(LETTERS), MinMaxRNCLMConfig.small(d_model=8, d_state=6))
    model.save(root / "run/model")
    save_tokenizer(Characters(LETTERS), root / "run/model/tokenizer")
    Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]]).save(root / "machine.json")
    for missing in ("rows.parquet", "text.jsonl.zst", "tokenizer.json"):
        (root / missing).write_text("{}")
    (root / "corpus-file").mkdir()
    (root / "corpus-file/manifest.json").write_text("{}")
    return root


READ_ONLY = ["/sys/kernel/new"] if os.path.isdir("/sys/kernel") else []
NOT_A_FOLDER = ("{file}", "{file}/under", *READ_ONLY, LONG, "", "a\0b", "{loop}", "{loop}/under", "/dev/null")
NOT_A_FILE = ("{folder}", "{file}/under", "{folder}/no/such", *READ_ONLY, LONG, "", "a\0b", "{loop}/under")
NO_INPUT = ("{root}/missing", "{file}", "{binary.txt}", "{folder}", "", LONG, "a\0b", "{loop}", "{dangling}")
NO_COUNT = ("-1", "0", "nan", "1.5", "", HUGE)
NO_NUMBER = ("-1", "nan", "inf", "1e999", "many", "")
NO_DEVICE = ("tpu", "cuda:99", "", *([] if torch.cuda.is_available() else ["cuda"]))

RUN = ("run", EXPERIMENT, "--scale", "smoke", "--out", "{out}")
SOURCE = ("data", "prepare", "--out", "{out}", "--tokenizer", "bytes")
PREPARE = ("data", "prepare", "{text.txt}", "--out", "{out}", "--tokenizer", "bytes")
PRETRAIN = ("pretrain", "char-1m", "--corpus", "{corpus}", "--out", "{out}")
CERTIFY = ("certify", "latching-4")
SAMPLE = ("sample", "{run}")
EVAL = ("eval-lm", "{run}", "--corpus", "{corpus}", "--out", "{out}")


def with_each(command, *values):
    """A command with each value put after it."""
    return [(*command, value) for value in values]


BAD = [
    # The parser
    ("no-such-command",),
    ("--no-such-option",),
    ("",),
    ("lst",),
    ("data", "perpare"),
    ("data", "prepare"),
    ("run",),
    ("certify", "latching-4"),
    ("compile",),
    ("draw", "ab", "cd"),
    ("run", EXPERIMENT, "--jbos", "2"),
    ("run", EXPERIMENT, "--jobs"),
    ("check", "extra"),
    ("list", "a", "b"),
    ("\x1b[31mred",),
    ("\udcff",),
    # list
    ("list", "no such experiment"),
    ("list", "a\0b"),
    ("list", LONG),
    # run
    *with_each(("run",), "", "latching-4/minmax", "latching_4", "*", "../..", "a\0b", LONG, "/", "\x1b[2J"),
    *with_each((*RUN, "--out"), *NOT_A_FOLDER),
    *with_each((*RUN, "--scale"), "", "huge", "smok", "SMOKE"),
    *with_each((*RUN, "--seeds"), *NO_COUNT),
    *with_each((*RUN, "--batch-size"), *NO_COUNT),
    *with_each((*RUN, "--length"), *NO_COUNT),
    *with_each((*RUN, "--jobs"), *NO_COUNT),
    *with_each((*RUN, "--threads"), *NO_COUNT),
    *with_each((*RUN, "--hours"), *NO_NUMBER),
    *with_each((*RUN, "--ray", "auto", "--gpus"), *NO_NUMBER),
    *with_each((*RUN, "--device"), *NO_DEVICE),
    # report
    *with_each(("report", "--out", "{out}"), *NO_INPUT, "{records}"),
    *with_each(("report", "{records}", "--out"), *NOT_A_FOLDER),
    # pretrain
    *with_each(("pretrain",), "", "char-2m", "{root}/missing.json", "{half.json}", "{list.json}", "{deep.json}"),
    *with_each(("pretrain",), "{numbers.json}", "{binary.json}", "{half.toml}", "{binary.toml}", "{folder.json}", LONG),
    ("pretrain", "char-1m"),
    ("pretrain", "char-1m", "--corpus", "{corpus}"),
    ("pretrain", "char-1m", "--out", "{out}"),
    *with_each(("pretrain", "char-1m", "--out", "{out}", "--corpus"), *NO_INPUT, "{corpus-file}"),
    *with_each((*PRETRAIN, "--out"), *NOT_A_FOLDER),
    *with_each((*PRETRAIN, "--set"), "", "=", "steps", "stpes=3", "steps=-1", "steps=nan", "steps=1e999", "batch=3"),
    *with_each((*PRETRAIN, "--set"), "batch.micro=0", "model.kind=magic", "model.options=3", "seed=-1", "steps=[]"),
    *with_each((*PRETRAIN, "--set"), "model.options.d_model=1000000000", "model.options.d_model=100000"),
    *with_each((*PRETRAIN, "--set"), "model.options.n_layers=9000000", 'model={"kind":"gru","options":{"width":8}}'),
    *with_each((*PRETRAIN, "--set"), "optimizer.learning_rate=nan", "optimizer.learning_rate=-1", "vocabulary=9"),
    *with_each((*PRETRAIN, "--set"), "batch.context=1000000000000", "batch.micro=1000000000000", "name.x=1"),
    *with_each((*PRETRAIN, "--strategy"), "", "tensor", "DDP"),
    *with_each((*PRETRAIN, "--threads"), *NO_COUNT),
    *with_each((*PRETRAIN, "--peak-tflops"), "0", *NO_NUMBER),
    *with_each((*PRETRAIN, "--device"), *NO_DEVICE),
    # export
    *with_each(("export", "--hf", "{out}"), *NO_INPUT, "{model}", "{corpus}"),
    *with_each(("export", "{run}", "--hf"), *NOT_A_FOLDER),
    # data
    *with_each(SOURCE, *NO_INPUT, "{empty.txt}", "{binary.json}", "hf:", "{root}/*.nothing", "{text.txt}/x"),
    (*PREPARE, "{text.txt}"),
    *with_each((*PREPARE, "--out"), *NOT_A_FOLDER, "/", ".."),
    *with_each((*PREPARE, "--tokenizer"), "", "nothing", "{root}/missing", "{file}", "{half.json}", "{folder}", LONG),
    *with_each((*PREPARE, "--validation-documents"), "-1", "99", "nan", "many", "", HUGE),
    *with_each((*PREPARE, "--validation-fraction"), "0", "1", *NO_NUMBER),
    (*PREPARE, "--validation-fraction", "0.5", "--validation-documents", "1"),
    *with_each((*PREPARE, "--seed"), "-1", "nan", "1.5", "many", ""),
    *with_each((*PREPARE, "--jobs"), *NO_COUNT),
    *with_each((*PREPARE, "--shard-tokens"), *NO_COUNT[:-1]),
    *with_each((*PREPARE, "--field"), ""),
    *with_each((*PREPARE, "--separator"), ""),
    *with_each(("data", "verify"), *NO_INPUT, "{run}", "{corpus-file}"),
    # sample
    *with_each(("sample",), *NO_INPUT, "{model}", "{corpus}"),
    *with_each((*SAMPLE, "--prompt"), "Z", "é", "\udcff", "a\0b", ""),
    *with_each((*SAMPLE, "--prompt", "a", "--length"), "-1", "nan", "1.5", "many", ""),
    *with_each((*SAMPLE, "--prompt", "a", "--temperature"), *NO_NUMBER),
    *with_each((*SAMPLE, "--prompt", "a", "--top-p"), "0", "2", *NO_NUMBER),
    *with_each((*SAMPLE, "--prompt", "a", "--top-k"), *NO_COUNT[:-1]),
    *with_each((*SAMPLE, "--prompt", "a", "--seed"), "-1", "nan", "1.5", "many", "", HUGE),
    *with_each((*SAMPLE, "--prompt", "a", "--device"), *NO_DEVICE),
    # eval-lm
    *with_each(("eval-lm", "--corpus", "{corpus}", "--out", "{out}"), *NO_INPUT, "{model}"),
    *with_each(("eval-lm", "{run}", "--out", "{out}", "--corpus"), *NO_INPUT, "{other}", "{corpus-file}"),
    *with_each((*EVAL, "--out"), *NOT_A_FILE),
    *with_each((*EVAL, "--split"), "", "test"),
    *with_each((*EVAL, "--length"), *NO_COUNT, "120"),
    *with_each((*EVAL, "--windows"), *NO_COUNT[:-1]),
    *with_each((*EVAL, "--rows"), *NO_COUNT[:-1]),
    *with_each((*EVAL, "--limit"), *NO_COUNT[:-1]),
    *with_each((*EVAL, "--device"), *NO_DEVICE),
    # compile
    *with_each(("compile",), "", "a(b", ")", "*", "a{", "a{2,1}", "[", "\\", "a\0b", "(" * 5000, "a**b|*"),
    *with_each(("compile", "ab", "--alphabet"), "a", "aab", "(", " ", "ab\0"),
    *with_each(("compile", "ab", "--method"), "", "magic"),
    *with_each(("compile", "ab", "--groups"), "", "magic"),
    ("compile", "ab", "--groups", "series", "--method", "one_hot"),
    *with_each(("compile", "ab", "--out"), *NOT_A_FOLDER),
    # extract
    *with_each(("extract",), "latchin-4", *NO_INPUT, "{model}", "{machine.json}"),
    *with_each(("extract", "parity", "--max-states"), *NO_COUNT[:-1]),
    *with_each(("extract", "parity", "--symbols"), *NO_COUNT, "99"),
    *with_each(("extract", "parity", "--out"), *NOT_A_FILE),
    # certify
    *with_each(CERTIFY, "", "latchin(4)", "latching", "latching()", "latching(0)", "latching(-1)"),
    *with_each(CERTIFY, "latching(x)", "latching(1.5)", "latching(4", "latching(4, 5, 6)", "fflm(nan)"),
    *with_each(CERTIFY, "latching(1000000000)", f"latching({HUGE})", "cyclic(1000000)", "cyclic(1)"),
    *with_each(CERTIFY, "sequences(100000)", "induction_heads(100000000)", "word_problem(S6xS6xS6)"),
    *with_each(CERTIFY, "transformations(256, 100000000)", "word_problem(S99)", "word_problem()"),
    *with_each(CERTIFY, "tomita(8)", "regular(a(b)", "regular()", "fflm(2)", "a\0b", LONG),
    *with_each(CERTIFY, "last_step(" * 3000 + "parity" + ")" * 3000, f"cyclic({'9' * 5000})"),
    *[("certify", each, "parity") for each in ("latchin-4", *NO_INPUT, "{model}")],
    *with_each(("certify", "parity", "parity", "--precision"), "", "float16"),
    *with_each(("certify", "parity", "parity", "--tolerance"), *NO_NUMBER),
    *with_each(("certify", "parity", "parity", "--max-states"), *NO_COUNT[:-1]),
    *with_each(("certify", "parity", "parity", "--max-bytes"), *NO_COUNT[:-1]),
    # draw
    *with_each(("draw", "--out", "{out}.svg"), "{root}/missing.json", "{half.json}", "{list.json}", "{other.json}"),
    *with_each(("draw", "--out", "{out}.svg"), "{binary.json}", "{folder.json}", "{deep.json}", "", "a(b", "\0.json"),
    *with_each(("draw", "ab", "--out"), *NOT_A_FILE, "{out}.png", "{out}"),
    *with_each(("draw", "ab", "--out", "{out}.svg", "--alphabet"), "a", "aab", "("),
]


def fill(word, world, out):
    for path in world.iterdir():
        word = word.replace(f"{{{path.name}}}", str(path))
    return word.replace("{root}", str(world)).replace("{out}", str(out))


def name(words):
    return " ".join(words)[:60].encode("unicode_escape").decode()


@pytest.mark.parametrize("words", BAD, ids=name)
def test_a_bad_command_line_is_one_line_and_exit_code_two(words, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [fill(word, world, tmp_path / "out") for word in words])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 1500
    assert "\x1b" not in result.stderr
    assert result.stdout == ""
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


ODD = [  # unusual, and no mistake
    ("extract", "parity", "--max-states", HUGE),
    ("certify", "parity", "parity", "--max-states", HUGE),
    ("certify", "parity", "parity", "--max-bytes", HUGE),
    *with_each(("certify", "parity", "parity", "--tolerance"), "1e308", "1e-308"),
    *with_each((*SAMPLE, "--prompt", "a", "--length", "3", "--temperature"), "1e308", "1e-308", "0"),
    *with_each((*SAMPLE, "--prompt", "a", "--length", "3", "--top-p"), "1e-300", "1"),
    *with_each((*SAMPLE, "--prompt", "a", "--length", "3", "--top-k"), "1", str(2**31 - 1)),
    (*SAMPLE, "--prompt", "a", "--length", "0"),
    (*SAMPLE, "--prompt", "a", "--length", "3", "--seed", str(2**63 - 1)),
    (*EVAL, "--length", "8", "--rows", HUGE),
    (*EVAL, "--length", "8", "--limit", HUGE),
    (*EVAL, "--length", "8", "--windows", "120"),
    (*PREPARE, "--validation-fraction", "0.5", "--shard-tokens", HUGE),
    (*PREPARE, "--validation-fraction", "0.5", "--seed", HUGE),
    *with_each((*PREPARE, "--validation-fraction"), "1e-300", "0.999999"),
    ("pretrain", "--show", "char-1m"),
    ("extract", "parity", "--out", "{out}.json"),
    *with_each(("list",), "", "/", "latching"),
    *with_each(("compile", "ab", "--alphabet"), "ab", "bac", "\u00e9ab", "ab\U0001f600"),
]


@pytest.mark.parametrize("words", ODD, ids=name)
def test_an_odd_command_line_ends_without_an_internal_error(words, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [fill(word, world, tmp_path / "out") for word in words])
    assert result.exit_code in (0, 1, 2, 3), result.output
    assert len(result.stderr.splitlines()) == {2: 1, 3: 1}.get(result.exit_code, 0), result.stderr


ENVIRONMENTS = [{"COLUMNS": "0"}, {"COLUMNS": "1"}, {"COLUMNS": "-5"}, {"COLUMNS": "many"}, {"TERM": "dumb"}]
ENVIRONMENTS += [{"TERM": ""}, {"NO_COLOR": "1"}, {"LANG": "C", "LC_ALL": "C"}, {"HOME": "/nowhere"}]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
@pytest.mark.parametrize("words", ["list latching-4", "run --help", "data verify {corpus}", "certify parity parity"])
def test_an_odd_environment_changes_no_exit_code(words, environment, world):
    words = [fill(word, world, "") for word in words.split()]
    result = CliRunner().invoke(app, words, env={"COLUMNS": None, **environment})
    assert result.exit_code == 0, result.output


NEAR = [
    ("run latching_4", "did you mean latching-4"),
    ("lst", "Did you mean 'list'"),
    ("list latchingg-4/minmax", "did you mean latching-4/minmax-s"),
    ("certify latchin-4 parity", "did you mean latching-4"),
    ("extract pariti", "did you mean parity"),
    ("certify parity partiy", "did you mean parity"),
    ("run latching-4/minmax-s --jbos 2", "--jobs"),
]


@pytest.mark.parametrize(("words", "message"), NEAR)
def test_a_name_with_a_typo_is_answered_with_the_nearest(words, message):
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    assert message in result.stderr


HIDDEN = [
    ("tensorboard", RUN, "experiments"),
    ("scipy", RUN, "experiments"),
    ("ray", (*RUN, "--ray"), "ray"),
    ("transformers", ("run", "latching-4/mamba-s", "--out", "{out}"), "baselines"),
    ("xlstm", ("run", "latching-4/slstm-s", "--out", "{out}"), "baselines"),
    ("mlstm_kernels", ("run", "latching-4/xlstm-l-s", "--out", "{out}"), "baselines"),
    ("matplotlib", ("report", "{records}", "--out", "{out}"), "experiments"),
    ("scipy", ("report", "{records}", "--out", "{out}"), "experiments"),
    ("tensorboard", PRETRAIN, "lm"),
    ("scipy", PRETRAIN, "lm"),
    ("transformers", ("pretrain", "char-1m-mamba", "--corpus", "{corpus}", "--out", "{out}"), "baselines"),
    ("transformers", ("export", "{run}", "--hf", "{out}"), "hf"),
    ("accelerate", ("export", "{run}", "--hf", "{out}"), "hf"),
    ("datasets", (*SOURCE, "{text.txt}", "hf:owner/name"), "lm"),
    ("pyarrow", (*SOURCE, "{text.txt}", "{rows.parquet}"), "lm"),
    ("zstandard", (*SOURCE, "{text.txt}", "{text.jsonl.zst}"), "lm"),
    ("tokenizers", (*SOURCE, "{text.txt}", "--tokenizer", "{tokenizer.json}"), "lm"),
]


@pytest.mark.parametrize(("module", "words", "extra"), HIDDEN)
def test_a_missing_package_is_named_before_any_work_starts(module, words, extra, world, tmp_path, monkeypatch):
    for loaded in [each for each in sys.modules if each == module or each.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [fill(word, world, tmp_path / "out") for word in words])
    assert result.exit_code == 2, result.output
    assert f"pip install 'latchwork[{extra}]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
