import json
import pickle
import shutil
from unittest import mock

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchwork.data.corpus import Corpus
from latchwork.data.shards import SplitWriter, write_corpus
from latchwork.data.tokenizers import Bytes, Characters

documents = st.lists(st.lists(st.integers(0, 256), min_size=1, max_size=9), max_size=8)


@given(documents, st.integers(1, 12), st.data())
def test_reading_equals_slicing_all_documents_in_a_row(tmp_path_factory, texts, shard_tokens, data):
    out = tmp_path_factory.mktemp("corpus") / "corpus"
    with mock.patch("os.fsync"):  # the slow part
        split = write_corpus(out, Bytes(), texts, [[1]], shard_tokens=shard_tokens).train
    everything = [token for text in texts for token in text]
    assert len(split) == len(everything)
    start = data.draw(st.integers(0, len(everything)))
    length = data.draw(st.integers(0, len(everything) - start))
    read = split.read(start, length)
    assert read.dtype == numpy.int64
    assert read.tolist() == everything[start : start + length]
    assert [split.document(number).tolist() for number in range(split.documents)] == texts
    assert split.starts.tolist() == [sum(map(len, texts[:number])) for number in range(len(texts))]
    assert split.bytes == sum(token != 256 for token in everything)
    Corpus(out).verify()


@pytest.mark.parametrize(("vocabulary", "dtype"), [(2**16, "uint16"), (2**16 + 1, "uint32")])
def test_the_dtype_is_the_smallest_that_holds_the_vocabulary(tmp_path, vocabulary, dtype):
    tokenizer = Bytes()
    tokenizer.vocabulary = vocabulary
    tokenizer.byte_lengths = lambda: None
    corpus = write_corpus(tmp_path / "corpus", tokenizer, [[vocabulary - 1, 0]], [[0]])
    assert corpus.manifest["dtype"] == dtype
    assert corpus.train.read(0, 2).tolist() == [vocabulary - 1, 0]
    assert (tmp_path / "corpus/train-00000.tokens").stat().st_size == (4 if dtype == "uint16" else 8)


def test_a_corpus_carries_its_tokenizer_and_opens_anew_in_another_process(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", Characters("ab"), [[0, 1], [1]], [[1]])
    assert (corpus.vocabulary, corpus.end) == (2, None)
    moved = tmp_path / "moved"
    shutil.move(corpus.path, moved)
    corpus = Corpus(str(moved))
    assert corpus.tokenizer.decode(corpus.train.document(0)) == "ab"
    assert len(pickle.dumps(corpus.train)) < 2000  # what it is made of, not what is in it
    assert pickle.loads(pickle.dumps(corpus.train)).read(1, 2).tolist() == [1, 1]
    assert pickle.loads(pickle.dumps(corpus)).end is None


def test_reading_outside_of_a_split_is_an_error(tmp_path):
    split = write_corpus(tmp_path / "corpus", Bytes(), [[1, 2, 3]], []).train
    for start, length in [(-1, 1), (0, 4), (3, 1), (4, 0), (0, -1)]:
        with pytest.raises(IndexError, match="start and length must lie within the 3 tokens"):
            split.read(start, length)
    for number in (-1, 1):
        with pytest.raises(IndexError, match="number must be at least 0 and less than the 1 documents"):
            split.document(number)


def in_manifest(change):
    def damage(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "train-00001.tokens").unlink(), "train-00001.tokens is missing"),
        (
            lambda folder: (folder / "train-00001.tokens").write_bytes(b"short"),
            "train-00001.tokens must have 6 bytes, says the manifest; it has 5",
        ),
        (lambda folder: (folder / "validation.starts").write_bytes(b"short"), "validation.starts must have 8 bytes"),
        (lambda folder: (folder / "manifest.json").unlink(), "holds no corpus: it has no manifest.json"),
        (in_manifest(lambda manifest: manifest.update(version=2)), "has version 2; this release reads version 1"),
        (in_manifest(lambda manifest: manifest.update(format="another")), "is not the manifest of a corpus"),
        (
            in_manifest(lambda manifest: manifest.update(dtype="uint8")),
            "dtype must be one of uint16, uint32; got 'uint8'",
        ),
        (
            in_manifest(lambda manifest: manifest["splits"]["train"]["shards"][0].pop("sha256")),
            "is not whole: 'sha256'",
        ),
        (in_manifest(lambda manifest: manifest["splits"]["train"].update(tokens=8)), "8 tokens, but its shards have 7"),
    ],
)
def test_a_damaged_corpus_does_not_open(tmp_path, damage, message):
    write_corpus(tmp_path / "corpus", Bytes(), [[1, 2, 3, 4], [5, 6, 7]], [[1]], shard_tokens=2)
    damage(tmp_path / "corpus")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Corpus(tmp_path / "corpus")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train-00000.tokens", [1, 400], "has the token 400; the vocabulary has 257"),
        ("train.starts", [0, 0, 0, 0], "must hold growing numbers"),
        ("train.starts", [1, 0, 0, 0], "must hold growing numbers"),
    ],
)
def test_verify_finds_numbers_that_cannot_be(tmp_path, file, content, message, monkeypatch):
    corpus = write_corpus(tmp_path / "corpus", Bytes(), [[1, 2]], [[1]])
    path = corpus.path / file
    if file.endswith("starts"):  # two documents, so that the order matters
        corpus = write_corpus(tmp_path / "two", Bytes(), [[1], [2]], [[1]])
        path = corpus.path / file
        content = numpy.array(content[:2], "<i8")
    path.write_bytes(numpy.asarray(content, "<u2" if file.endswith("tokens") else "<i8").tobytes())
    monkeypatch.setattr("latchwork.data.corpus.check_hashes", lambda *_: None)  # someone made the hashes fit
    with pytest.raises(ValueError, match=message):
        Corpus(corpus.path).verify()


@pytest.mark.parametrize("tokens", [[], [[1]], [-1], [2**16]])
def test_a_document_must_be_a_row_of_tokens_that_fit(tmp_path, tokens):
    with SplitWriter(tmp_path, "train", "uint16") as writer, pytest.raises(ValueError, match="tokens must"):
        writer.add(tokens, 1)


def test_a_corpus_is_not_written_over_another_and_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="tokens must"):
        write_corpus(tmp_path / "corpus", Bytes(), [[1], []], [])
    assert not list(tmp_path.iterdir())
    (tmp_path / "corpus").mkdir()
    with pytest.raises(FileExistsError, match="must not exist yet"):
        write_corpus(tmp_path / "corpus", Bytes(), [[1]], [])
