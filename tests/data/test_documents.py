import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchwork.data import documents as module
from latchwork.data.dataset import HubDataset, parse_dataset
from latchwork.data.documents import TextFile, find_files

pyarrow = pytest.importorskip("pyarrow")
zstandard = pytest.importorskip("zstandard")
TEXTS = ["first\r\nline", " ", "", "zweiter Satz, ü\n", "日本" * 50, "\N{PILE OF POO}"]
SEEN = [text for text in TEXTS if text.strip()]


def jsonl(texts):
    return "\n\n".join(json.dumps({"text": text, "other": 1}) for text in texts).encode()


def parquet(texts):
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"other": [1] * (len(texts) + 1), "text": [*texts, None]}), out)
    return out.getvalue()


FORMATS = {".txt": lambda texts: "|".join(texts).encode(), ".jsonl": jsonl, ".parquet": parquet}
PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_documents_come_out_as_they_went_in_however_the_file_is_cut(tmp_path, monkeypatch, kind, compression, piece):
    monkeypatch.setattr(module, "PIECE", piece)
    path = tmp_path / f"file{kind}{compression}"
    path.write_bytes(PACK[compression](FORMATS[kind](TEXTS)))
    source = TextFile(path, separator="|")
    assert list(source) == SEEN
    assert list(source) == SEEN  # and again


def test_a_text_file_is_one_document_with_its_line_ends(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\n\nthree")
    assert list(TextFile(tmp_path / "a.txt")) == ["one\r\ntwo\n\nthree"]


@given(st.lists(st.text(alphabet="abé\n", max_size=5), max_size=6), st.integers(1, 9))
def test_cutting_by_a_separator_equals_split(tmp_path_factory, texts, piece):
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_text("<é>".join(["x", *texts]), encoding="utf-8", newline="")
    before, module.PIECE = module.PIECE, piece
    try:
        assert list(TextFile(path, separator="<é>")) == [text for text in ["x", *texts] if text.strip()]
    finally:
        module.PIECE = before


@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_several_members_in_one_file_are_read_in_turn(tmp_path, compression):
    path = tmp_path / f"a.txt{compression}"
    path.write_bytes(PACK[compression](b"one ") + PACK[compression](b"two"))
    assert list(TextFile(path)) == ["one two"]


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_file_is_an_error(tmp_path, kind, compression):
    path = tmp_path / f"a{kind}{compression}"
    for content in [PACK[compression](FORMATS[kind](["", " \n"])), b""]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"a{kind}{compression} is (empty|not parquet, or half-written)"):
            list(TextFile(path, separator="|"))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("compression", [".gz", ".zst"])
@pytest.mark.parametrize("how", ["cut", "changed", "foreign"])
def test_a_damaged_compressed_file_is_an_error(tmp_path, kind, compression, how):
    path = tmp_path / f"a{kind}{compression}"
    content = PACK[compression](FORMATS[kind](["many words " * 100, *SEEN]))
    middle = len(content) // 2
    change = bytes(byte ^ 255 for byte in content[middle : middle + 4])
    path.write_bytes(
        {
            "cut": content[:-3],
            "changed": content[:middle] + change + content[middle + 4 :],
            "foreign": b"plain text, not compressed at all",
        }[how]
    )
    with pytest.raises(ValueError, match=f"a{kind}{compression} is (damaged or |not .*)half-written|not text"):
        list(TextFile(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"text\0more", "is binary, not text: byte 4 is 0"),
        ("a.txt", b"\x89PNG\r\n", "is not text in UTF-8, or half-written: invalid start byte at byte 0"),
        ("a.txt", "half é".encode()[:-1], "is not text in UTF-8, or half-written: unexpected end of data at byte 5"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b', "is not JSON in line 2, or half-written"),
        ("a.jsonl", b'{"text": "a"}\n{"body": "b"}', "must have a text under 'text' in line 2; it has 'body'"),
        ("a.jsonl", b'{"text": 1}', "must have a text under 'text' in line 1"),
        ("a.jsonl", b"[1]", "must have a text under 'text' in line 1; it has list"),
        ("a.jsonl", b'{"text": "\\ud800"}', "has half a surrogate pair at character 0 in line 1"),
        ("a.jsonl", b"\0\1", "is binary"),
        ("a.parquet", parquet(["a"])[:-1], "is not parquet, or half-written"),
        ("a.parquet", b"PAR1", "is not parquet, or half-written"),
    ],
)
def test_what_is_not_what_its_name_says_is_an_error(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} {message}"):
        list(TextFile(tmp_path / name))


def test_the_column_of_a_table_must_be_there_and_be_text(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet(["a"]))
    assert list(TextFile(tmp_path / "a.parquet")) == ["a"]
    with pytest.raises(ValueError, match=r"a\.parquet: it must have a column 'body'; it has 'other', 'text'"):
        list(TextFile(tmp_path / "a.parquet", field="body"))
    with pytest.raises(ValueError, match=r"a\.parquet: its column 'other' must be text; it is int64"):
        list(TextFile(tmp_path / "a.parquet", field="other"))


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_a_document_larger_than_the_bound_is_an_error(tmp_path, monkeypatch, kind, compression, piece):
    monkeypatch.setattr(module, "PIECE", piece)
    monkeypatch.setattr(module, "DOCUMENT", 1000)
    path, fits = tmp_path / f"a{kind}{compression}", "a" * 900
    path.write_bytes(PACK[compression](FORMATS[kind]([fits] * 5)))
    assert list(TextFile(path, separator="|")) == [fits] * 5
    path.write_bytes(PACK[compression](FORMATS[kind]([fits, "a" * 1001, fits])))
    with pytest.raises(ValueError, match=rf"a{kind}{compression}:?.* must have documents of at most 1,000 bytes"):
        list(TextFile(path, separator="|"))


@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_a_small_file_is_unpacked_in_small_pieces(tmp_path, compression):
    path = tmp_path / f"a.txt{compression}"
    content = PACK[compression](b"a" * (1 << 28))
    assert len(content) < 1 << 19
    path.write_bytes(content)
    sizes = [len(piece) for piece in module._pieces(path)]
    assert sum(sizes) == 1 << 28
    assert max(sizes) <= 1 << 26
    with pytest.raises(ValueError, match="must have documents of at most 134,217,728 bytes"):
        list(TextFile(path))


def test_parquet_that_unpacks_to_far_more_than_text_does_is_an_error(tmp_path, monkeypatch):
    import pyarrow.parquet

    monkeypatch.setattr(module, "DOCUMENT", 10_000)
    table = pyarrow.table({"text": ["a" * 5_000_000]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    (tmp_path / "b.parquet.zst").write_bytes(zstandard.compress(b"a" * 10_000_000))
    for name in ("a.parquet", "b.parquet.zst"):
        with pytest.raises(ValueError, match=rf"{name}: it unpacks [\d,]+ bytes to [\d,]+ or more"):
            list(TextFile(tmp_path / name))


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.txt.zst").write_bytes(zstandard.compress(b"a"))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"zstandard is missing: pip install 'latchwork\[lm\]'"):
        list(TextFile(tmp_path / "a.txt.zst"))


def test_files_are_found_in_folders_and_by_patterns_in_the_order_of_their_names(tmp_path):
    names = ["b.txt", "a.jsonl.gz", "deep/er/c.parquet", "deep/a.txt.zst", "notes.md", ".hidden/x.txt", "deep/.y.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in find_files([tmp_path])]
    assert found == ["a.jsonl.gz", "b.txt", "deep/a.txt.zst", "deep/er/c.parquet"]
    assert find_files([f"{tmp_path}/**/*.txt*"]) == [tmp_path / "b.txt", tmp_path / "deep/a.txt.zst"]
    assert find_files([tmp_path / "deep", tmp_path / "b.txt"])[-1] == tmp_path / "b.txt"
    with pytest.raises(ValueError, match=r"notes\.md must end in \.txt, \.jsonl, \.parquet"):
        find_files([tmp_path / "notes.md"])
    with pytest.raises(FileNotFoundError, match="is no file, no folder and no pattern that finds files"):
        find_files([tmp_path / "missing*"])
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none has no file that ends in"):
        find_files([tmp_path / "none"])


def test_the_stamp_of_a_file_changes_with_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a")
    before = TextFile(path).stamp()
    assert before == TextFile(path).stamp()
    path.write_text("ab")
    assert before != TextFile(path).stamp()


@pytest.fixture
def hub(monkeypatch):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": [*TEXTS, None] * 700, "number": list(range(7 * 700))})
    asked = []

    def load(name, config, split, revision):
        asked.append((name, config, split, revision))
        if name == "missing":
            raise RuntimeError("no such data set")
        return rows

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


def test_a_data_set_gives_its_documents(hub):
    source = parse_dataset("owner/name:plain@v1[test]")
    assert list(source) == SEEN * 700
    assert hub == [("owner/name", "plain", "test", "v1")]  # once
    assert source.stamp() == parse_dataset("owner/name:plain@v1[test]").stamp()
    assert parse_dataset("name") == HubDataset("name", None, "train", None, "text")


def test_a_data_set_that_is_not_there_or_has_no_such_text_is_an_error(hub):
    with pytest.raises(FileNotFoundError, match=r"hf:missing\[train\] could not be had from the hub: no such data set"):
        list(parse_dataset("missing"))
    with pytest.raises(ValueError, match="must have a column 'body'; it has text, number"):
        list(parse_dataset("name", "body"))
    with pytest.raises(ValueError, match="the column 'number' must be text; got int"):
        list(parse_dataset("name", "number"))
    for text in ["", "name[", "name[]", "name:", "name@", "[train]"]:
        with pytest.raises(ValueError, match="a data set must be hf:NAME"):
            parse_dataset(text)
