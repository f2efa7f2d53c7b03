import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

from latchwork.data import prepare as module
from latchwork.data.corpus import Corpus
from latchwork.data.documents import TextFile
from latchwork.data.encoding import Encoder
from latchwork.data.held_out import HeldOut
from latchwork.data.prepare import prepare
from latchwork.data.tokenizers import Bytes, Characters

WORDS = ["min", "max", "latch", "été", "日本", "set", "reset", "\N{PILE OF POO}"]


def make_texts(count, seed=0):
    draw = numpy.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(1, 30))) for _ in range(count)]


@pytest.fixture
def source(tmp_path):
    """Two files, 60 documents."""
    folder = tmp_path / "source"
    folder.mkdir()
    texts = make_texts(60)
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:40]))
    (folder / "b.txt").write_text("|".join(texts[40:]), encoding="utf-8")
    return folder


OPTIONS = {"tokenizer": "bytes", "validation_documents": 7, "separator": "|", "shard_tokens": 400}


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def decoded(split, tokenizer):
    return [tokenizer.decode(split.document(number)) for number in range(split.documents)]


def test_every_document_is_in_one_split_in_its_order(source, tmp_path):
    corpus = prepare([source], tmp_path / "out", **OPTIONS)
    corpus.verify()
    texts = make_texts(60)
    held = decoded(corpus.validation, corpus.tokenizer)
    assert len(held) == 7
    assert held == [text for text in texts if text in held]
    assert decoded(corpus.train, corpus.tokenizer) == [text for text in texts if text not in held]
    for split in (corpus.train, corpus.validation):
        assert all(split.document(number)[-1] == corpus.end for number in range(split.documents))
    assert corpus.train.bytes + corpus.validation.bytes == sum(len(text.encode()) for text in texts)
    assert len(corpus.manifest["splits"]["train"]["shards"]) > 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
    names = {name.rstrip("0123456789") for name in (path.stem for path in corpus.path.iterdir())}
    assert names == {"manifest", "tokenizer", "train", "train-", "validation", "validation-"}  # no notes of its making


def test_the_seed_draws_the_documents_held_out(source, tmp_path):
    held = [
        tuple(decoded(prepare([source], tmp_path / str(place), **OPTIONS, seed=seed).validation, Bytes()))
        for place, seed in enumerate([0, 0, 1])
    ]
    assert held[0] == held[1] != held[2]


def test_documents_are_held_out_evenly():
    counts = sum(HeldOut(20, 5, None, seed)._chosen.astype(int) for seed in range(400))
    assert (numpy.abs(counts - 100) < 40).all()  # binomial, standard deviation 8.7
    assert numpy.flatnonzero(HeldOut(1000, 5, None, 0)._chosen).tolist() == [11, 269, 850, 855, 921]  # for ever


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_of_one_text_the_last_part_is_held_out(tmp_path, fraction):
    text = "".join(make_texts(50))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = prepare([tmp_path / "a.txt"], tmp_path / "out", "characters", validation_fraction=fraction)
    cut = int(len(text) * (1 - fraction))
    assert decoded(corpus.train, corpus.tokenizer) == [text[:cut]]
    assert decoded(corpus.validation, corpus.tokenizer) == [text[cut:]]
    assert corpus.vocabulary == len(set(text))
    assert corpus.tokenizer.alphabet == "".join(sorted(set(text)))
    assert corpus.end is None


def test_the_number_of_processes_changes_nothing_and_they_end(source, tmp_path, monkeypatch):
    monkeypatch.setattr("latchwork.data.encoding.BATCH", 300)
    one = prepare([source], tmp_path / "one", **OPTIONS, jobs=1)
    two = prepare([source], tmp_path / "two", **OPTIONS, jobs=2)
    assert files(one.path) == files(two.path)


def test_encoding_keeps_the_order_and_reads_only_a_little_ahead(tmp_path, monkeypatch):
    class Now:
        """A pool without processes."""

        def submit(self, function, batch):
            nonlocal submitted
            submitted += 1
            return type("Future", (), {"result": lambda self: [(text, 0) for text in batch]})()

        def shutdown(self, cancel_futures):
            pass

    submitted = 0
    monkeypatch.setattr("latchwork.data.encoding.BATCH", 1)
    with Encoder(Bytes(), tmp_path, 1) as encoder:
        encoder._pool, encoder._jobs = Now(), 3
        found = encoder.encode(str(number) for number in range(100))
        assert next(found)[0] == "0"
        assert submitted == 7
        assert [text for text, _ in found] == [str(number) for number in range(1, 100)]
    with pytest.raises(ValueError, match="jobs must be at least 1; got 0"):
        Encoder(Bytes(), tmp_path, 0)


class Cut(BaseException):
    """As a kill: nothing expects it."""


def test_cut_off_at_any_rename_it_goes_on_to_the_same_bits(source, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    whole = files(prepare([source], tmp_path / "whole", **OPTIONS).path)
    replace, left = Path.replace, 0

    def cut(self, target):
        nonlocal left
        left -= 1
        if left == 0:
            raise Cut
        return replace(self, target)

    for moment in range(1, 10_000):
        left = moment
        monkeypatch.setattr(Path, "replace", cut)
        try:
            prepare([source], tmp_path / "out", **OPTIONS)
            break
        except Cut:
            pass
        finally:
            monkeypatch.setattr(Path, "replace", replace)
        assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())  # all or nothing
        out = prepare([source], tmp_path / "out", **OPTIONS).path
        assert files(out) == whole
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source", "whole"]
        for path in sorted(out.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()  # an empty folder may stay
    assert moment > 30


KILLED = """
import sys, time, json, multiprocessing
from latchwork.data.prepare import prepare

if __name__ == "__main__":
    source, out, pids, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])

    def watch(what, *_):
        time.sleep(0.02 if what == "tokenising" else 0)
        open(pids, "w").write(" ".join(str(child.pid) for child in multiprocessing.active_children()))

    prepare([source], out, **options, watch=watch)
"""


def test_killed_with_its_processes_it_leaves_none_and_does_not_make_finished_shards_again(source, tmp_path):
    whole = files(prepare([source], tmp_path / "whole", **OPTIONS).path)
    partial = tmp_path / ".out.partial"
    (tmp_path / "killed.py").write_text(KILLED)
    words = [tmp_path / "killed.py", source, tmp_path / "out", tmp_path / "pids", json.dumps({**OPTIONS, "jobs": 2})]
    with subprocess.Popen([sys.executable, *words]) as process:
        try:
            wait_for(lambda: len(list(partial.glob(".train-*.json"))) >= 3)
        finally:
            process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    done = {path.name: path.stat().st_ino for path in partial.glob("*.tokens")}
    children = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert children
    wait_for(lambda: not any(is_running(child) for child in children))
    out = prepare([source], tmp_path / "out", **OPTIONS).path
    assert files(out) == whole
    assert {name: (out / name).stat().st_ino for name in done} == done


def wait_for(condition):
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_finished_corpus_is_not_made_again_and_another_is_refused(source, tmp_path, monkeypatch):
    corpus = prepare([source], tmp_path / "out", **OPTIONS)
    before = {path: path.stat().st_mtime_ns for path in corpus.path.rglob("*")}
    assert prepare([source], tmp_path / "out", **OPTIONS, jobs=3).manifest == corpus.manifest
    assert before == {path: path.stat().st_mtime_ns for path in corpus.path.rglob("*")}
    changes = [{"seed": 1}, {"tokenizer": "characters"}, {"validation_documents": 8}, {"shard_tokens": 500}]
    for change in changes:
        with pytest.raises(FileExistsError, match="out holds another corpus"):
            prepare([source], tmp_path / "out", **{**OPTIONS, **change})
    (source / "b.txt").write_text("another")
    with pytest.raises(FileExistsError, match="out holds another corpus"):
        prepare([source], tmp_path / "out", **OPTIONS)
    for path in (tmp_path / "file", tmp_path / "folder/file"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        where = tmp_path / path.relative_to(tmp_path).parts[0]
        with pytest.raises(FileExistsError, match="is there already, and is not a corpus"):
            prepare([source], where, **OPTIONS)
    assert not list(tmp_path.glob(".*"))


def test_an_interrupted_preparation_is_not_gone_on_with_for_another_text_or_other_options(
    source, tmp_path, monkeypatch
):
    def interrupt(what, done, total):
        if what == "tokenising" and done > 2000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare([source], tmp_path / "out", **OPTIONS, watch=interrupt)
    assert list((tmp_path / ".out.partial").glob("*.tokens"))
    with pytest.raises(FileExistsError, match=r"of another corpus: preparation\.seed is 0 there and 1 here"):
        prepare([source], tmp_path / "out", **{**OPTIONS, "seed": 1})
    text = (source / "b.txt").read_text(encoding="utf-8")
    (source / "b.txt").write_text(text.replace("min", "mon"), encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"of another corpus: preparation\.sources\[1\]\.sha256 is "):
        prepare([source], tmp_path / "out", **OPTIONS)
    (source / "b.txt").write_text(text, encoding="utf-8")  # as it was, with another time of change
    prepare([source], tmp_path / "out", **OPTIONS).verify()


def test_a_shard_that_the_disk_lost_is_made_again(source, tmp_path):
    def interrupt(what, done, total):
        if what == "tokenising" and done > 3000:
            raise KeyboardInterrupt

    whole = files(prepare([source], tmp_path / "whole", **OPTIONS).path)
    with pytest.raises(KeyboardInterrupt):
        prepare([source], tmp_path / "out", **OPTIONS, watch=interrupt)
    shard = tmp_path / ".out.partial/train-00001.tokens"
    shard.write_bytes(shard.read_bytes()[:-2])
    assert files(prepare([source], tmp_path / "out", **OPTIONS).path) == whole


def test_bad_input_leaves_nothing(source, tmp_path):
    for name, content in [("c.txt", b""), ("c.txt", b"\0"), ("c.jsonl", b'{"text": "half'), ("c.txt.gz", b"\x1f\x8b")]:
        (source / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            prepare([source], tmp_path / "out", **OPTIONS)
        (source / name).unlink()
        assert [path.name for path in tmp_path.iterdir()] == ["source"]
    with pytest.raises(ValueError, match=r"text has .* which is none of the vocabulary's 3"):
        prepare([source], tmp_path / "out", **{**OPTIONS, "tokenizer": Characters("xyz")})
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_source_that_changes_while_it_is_read_is_an_error(source, tmp_path, monkeypatch):
    survey = module._survey

    def change_after(*arguments):
        found = survey(*arguments)
        with (source / "b.txt").open("a") as file:
            file.write("more")
        return found

    monkeypatch.setattr(module, "_survey", change_after)
    with pytest.raises(ValueError, match="sources must not change while they are read"):
        prepare([source], tmp_path / "out", **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"validation_documents": 60},
            "validation_documents must be less than the 60 documents that there are; got 60",
        ),
        ({"validation_documents": -1}, "validation_documents must be at least 0; got -1"),
        ({"validation_fraction": 0.1}, "only one of them can be given"),
        ({"validation_documents": None, "validation_fraction": 1.0}, "validation_fraction must be more than 0"),
        ({"validation_documents": None}, "must be less than the 60 documents that there are; got 5000"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"shard_tokens": 0}, "shard_tokens must be at least 1"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"separator": ""}, "separator must be at least one character"),
        ({"field": ""}, "field must be a name"),
        ({"tokenizer": "nothing"}, "tokenizer must be characters, bytes, gpt2"),
    ],
)
def test_a_bad_option_is_named(source, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        prepare([source], tmp_path / "out", **{**OPTIONS, **changes})
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_sources_must_be_a_list_of_different_ones(source, tmp_path):
    for sources in ([], str(source), source):
        with pytest.raises(ValueError, match="sources must be a list of at least one path or hf:NAME"):
            prepare(sources, tmp_path / "out", **OPTIONS)
    with pytest.raises(ValueError, match=r"sources must differ; .*a\.jsonl is given 2 times"):
        prepare([source, source / "a.jsonl"], tmp_path / "out", **OPTIONS)
    with pytest.raises(ValueError, match="out must be a folder with a name"):
        prepare([source], ".", **OPTIONS)


def test_no_document_may_be_held_out(source, tmp_path):
    corpus = prepare([source], tmp_path / "out", **{**OPTIONS, "validation_documents": 0})
    assert (len(corpus.validation), corpus.validation.documents, corpus.train.documents) == (0, 0, 60)
    corpus.verify()


def test_a_data_set_is_a_source(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": make_texts(9)})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    corpus = prepare(["hf:owner/name"], tmp_path / "out", "bytes", validation_documents=2)
    assert corpus.train.documents == 7
    assert corpus.manifest["preparation"]["sources"][0]["name"] == "hf:owner/name[train]"
    assert list(TextFile(tmp_path / "x").name)


def test_progress_is_told_up_to_the_end(source, tmp_path):
    told = []
    corpus = prepare([source], tmp_path / "out", **OPTIONS, watch=lambda *each: told.append(each))
    total = corpus.train.bytes + corpus.validation.bytes
    assert told[59] == ("reading", total, None)
    assert told[-1] == ("tokenising", total, total)
    assert Corpus(tmp_path / "out").train.documents == 53
