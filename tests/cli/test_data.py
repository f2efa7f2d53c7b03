import json

import pytest
from typer.testing import CliRunner

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.cli.main import app
from latchwork.data.corpus import Corpus
from latchwork.data.tokenizers import Characters, save_tokenizer

runner = CliRunner()
WIDE = {"COLUMNS": "200"}
TEXT = "min and max, a latch of é.\n" * 20


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path / "text.txt"


def prepare(text, out, *arguments):
    return runner.invoke(app, ["data", "prepare", str(text), "--out", str(out), *arguments], env=WIDE)


def test_prepare_writes_a_corpus_and_says_what_is_in_it(text, tmp_path):
    result = prepare(text, tmp_path / "out", "--tokenizer", "characters", "--validation-fraction", "0.1")
    assert result.exit_code == 0, result.output
    assert f"│ train      │ 1         │ {int(len(TEXT) * 0.9)} " in result.stdout
    assert f"a vocabulary of {len(set(TEXT))}" in result.stdout
    assert result.stderr == ""  # no progress bar where there is no terminal
    assert Corpus(tmp_path / "out").tokenizer.alphabet == "".join(sorted(set(TEXT)))
    assert runner.invoke(app, ["data", "verify", str(tmp_path / "out")]).exit_code == 0
    shard = tmp_path / "out/train-00000.tokens"
    shard.write_bytes(bytes(len(shard.read_bytes())))
    result = runner.invoke(app, ["data", "verify", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "train-00000.tokens has changed" in result.stderr


def test_a_text_is_cut_into_documents_by_a_separator_with_new_lines(text, tmp_path):
    options = ["--tokenizer", "bytes", "--separator", r"\n", "--validation-documents", "3", "--shard-tokens", "100"]
    result = prepare(text, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    corpus = Corpus(tmp_path / "out")
    assert (corpus.train.documents, corpus.validation.documents) == (17, 3)
    assert corpus.tokenizer.decode(corpus.train.document(0)) == TEXT.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokenizer", "nothing"], "tokenizer must be characters, bytes, gpt2"),
        (["--tokenizer", "bytes"], "validation_documents must be less than the 1 documents"),
        (["--tokenizer", "bytes", "--validation-fraction", "2"], "validation_fraction must be"),
        (["--tokenizer", "bytes", "--validation-fraction", "0.5", "--validation-documents", "1"], "only one of them"),
        (["missing.txt", "--tokenizer", "bytes"], "missing.txt is no file, no folder and no pattern"),
    ],
)
def test_bad_usage_exits_with_two_and_leaves_nothing(text, tmp_path, arguments, message):
    result = prepare(text, tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_openwebtext_is_the_default(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []

    def load(name, *_, **__):
        asked.append(name)
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load)
    result = runner.invoke(app, ["data", "prepare", "--out", str(tmp_path / "out"), "--tokenizer", "bytes"], env=WIDE)
    assert result.exit_code == 2
    assert "hf:Skylion007/openwebtext[train] could not be had from the hub: no network" in result.stderr
    assert asked == ["Skylion007/openwebtext"]


def test_an_interrupted_command_says_how_to_go_on(text, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("latchwork.cli.data.prepare", interrupt)
    result = prepare(text, tmp_path / "out")
    assert result.exit_code == 130
    assert "the same command resumes" in result.stderr


@pytest.fixture
def run(text, tmp_path):
    """A run with a model that has learnt nothing, and the corpus of its text."""
    assert (
        prepare(text, tmp_path / "corpus", "--tokenizer", "characters", "--validation-fraction", "0.4").exit_code == 0
    )
    model = MinMaxRNC_LM(len(set(TEXT)), MinMaxRNCLMConfig.small(d_model=8, d_state=6))
    model.save(tmp_path / "run/model")
    save_tokenizer(Characters(TEXT), tmp_path / "run/model/tokenizer")
    return tmp_path / "run"


def test_sample_prints_the_prompt_and_what_follows(run):
    arguments = ["sample", str(run), "--prompt", "max é", "--length", "30", "--seed", "1"]
    first, again = (runner.invoke(app, arguments) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.stdout == again.stdout
    assert first.stdout.startswith("max é")
    assert len(first.stdout) == 5 + 30 + 1
    greedy = runner.invoke(app, ["sample", str(run / "model"), "--length", "7", "--temperature", "0", "--top-k", "3"])
    assert len(greedy.stdout) == 8
    assert "text has 'Z' (U+005A)" in runner.invoke(app, ["sample", str(run), "--prompt", "Z"], env=WIDE).stderr


def test_eval_lm_prints_a_table_and_writes_json(run, tmp_path):
    arguments = ["eval-lm", str(run), "--corpus", str(tmp_path / "corpus"), "--length", "64", "--windows", "3"]
    result = runner.invoke(app, arguments, env=WIDE)
    assert result.exit_code == 0, result.output
    values = json.loads((run / "eval.json").read_text())
    assert values["split"] == "validation"
    assert values["positions"][-1][:3] == [33, 64, 96]
    assert f"│ all      │ {values['tokens']} " in result.stdout
    assert f"{values['loss']:.4f}" in result.stdout
    assert "bits per byte; 3 windows of 64 tokens" in result.stdout
    arguments = [
        "eval-lm",
        str(run),
        "--corpus",
        str(tmp_path / "corpus"),
        "--limit",
        "8",
        "--out",
        str(tmp_path / "a"),
    ]
    result = runner.invoke(app, arguments, env=WIDE)
    assert "not possible" in result.stdout
    tokens = len(Corpus(tmp_path / "corpus").validation)
    assert json.loads((tmp_path / "a").read_text())["length"] == tokens - 1


def test_eval_lm_refuses_a_corpus_of_another_tokenizer(run, text, tmp_path):
    assert prepare(text, tmp_path / "bytes", "--tokenizer", "bytes", "--validation-fraction", "0.5").exit_code == 0
    for corpus, message in [("bytes", "must have the tokenizer of"), ("nothing", "holds no corpus")]:
        result = runner.invoke(app, ["eval-lm", str(run), "--corpus", str(tmp_path / corpus)], env=WIDE)
        assert result.exit_code == 2
        assert message in result.stderr
    result = runner.invoke(app, ["eval-lm", str(run), "--corpus", str(tmp_path / "corpus"), "--split", "all"], env=WIDE)
    assert result.exit_code == 2
    assert not (run / "eval.json").exists()
