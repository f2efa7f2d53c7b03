"""Writing a corpus: documents go into shards. A shard appears whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy
from numpy.typing import ArrayLike

from latchwork.data.corpus import DTYPES, FORMAT, MANIFEST, SPLITS, TOKENIZER, VERSION, Corpus
from latchwork.data.tokenizers import Tokenizer, describe_tokenizer, save_tokenizer
from latchwork.files import file_hash, inside, read_json, write_json

SHARD_TOKENS = 2**26


class SplitWriter:
    """Appends documents to the shards of one split, and resumes in a folder that was left unfinished.

    `documents` is the number of documents in finished shards; `add` takes the next one. A shard ends with the document
    that fills it.
    """

    def __init__(self, folder: Path, split: str, dtype: str, shard_tokens: int = SHARD_TOKENS) -> None:
        self._folder, self._split, self._dtype, self._shard_tokens = folder, split, DTYPES[dtype], shard_tokens
        self._shards: list[dict[str, Any]] = []
        while (done := self._finished(len(self._shards))) is not None:
            self._shards.append(done)
        self._file: BinaryIO | None = None
        self._hash, self._tokens, self._bytes = hashlib.sha256(), 0, 0
        self._starts: list[int] = []

    @property
    def documents(self) -> int:
        """The documents in finished shards."""
        return sum(each["documents"] for each in self._shards)

    @property
    def bytes(self) -> int:
        """The bytes of text in finished shards."""
        return sum(each["bytes"] for each in self._shards)

    def add(self, tokens: ArrayLike, text_bytes: int) -> None:
        """Append a document of one or more tokens. text_bytes: the size of its text."""
        values = numpy.asarray(tokens)
        if values.ndim != 1 or not len(values):
            raise ValueError(f"tokens must be a row of at least one token; got the shape {values.shape}")
        if values.min() < 0 or values.max() > numpy.iinfo(self._dtype).max:
            raise ValueError(f"tokens must fit {self._dtype}; got {values.min()} to {values.max()}")
        content = values.astype(self._dtype).tobytes()
        if self._file is None:
            self._file = self._temporary().open("wb")
        self._file.write(content)
        self._hash.update(content)
        self._starts.append(self._tokens)
        self._tokens += len(values)
        self._bytes += text_bytes
        if self._tokens >= self._shard_tokens:
            self._finish_shard()

    def finish(self) -> dict[str, Any]:
        """Finish the last shard, write the index of the split, and return its part of the manifest."""
        if self._file is not None:
            self._finish_shard()
        index, first = self._folder / f"{self._split}.starts", 0
        temporary = index.with_name(f".{index.name}.{os.getpid()}.tmp")
        with temporary.open("wb") as file:
            for number, shard in enumerate(self._shards):
                starts = numpy.fromfile(self._starts_of(number), "<i8")
                file.write((starts + first).astype("<i8").tobytes())
                first += shard["tokens"]
        _into_place(temporary, index)
        return {
            "tokens": first,
            "documents": self.documents,
            "bytes": self.bytes,
            "starts": {"file": index.name, "sha256": file_hash(index)},
            "shards": self._shards,
        }

    def __enter__(self) -> SplitWriter:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the shard that is not finished."""
        if self._file is not None:
            self._file.close()
            self._temporary().unlink(missing_ok=True)
            self._forget()

    def _forget(self) -> None:
        self._file, self._starts = None, []
        self._hash, self._tokens, self._bytes = hashlib.sha256(), 0, 0

    def _finish_shard(self) -> None:
        """Write the tokens, then their index, then the note that says that both exist."""
        assert self._file is not None
        number = len(self._shards)
        self._file.close()
        shard = self._folder / f"{self._split}-{number:05d}.tokens"
        _into_place(self._temporary(), shard)
        numpy.array(self._starts, "<i8").tofile(self._temporary())
        _into_place(self._temporary(), self._starts_of(number))
        done = {
            "file": shard.name,
            "tokens": self._tokens,
            "documents": len(self._starts),
            "bytes": self._bytes,
            "sha256": self._hash.hexdigest(),
        }
        write_json(self._note(number), done)
        self._shards.append(done)
        self._forget()

    def _finished(self, number: int) -> dict[str, Any] | None:
        """The note of a shard if note, tokens and index are whole. Otherwise None: the shard is made again."""
        try:
            done = read_json(self._note(number))
            if done is None:
                return None
            shard, starts = inside(self._folder, done["file"], self._note(number)), self._starts_of(number)
            _ = int(done["bytes"]), str(done["sha256"])
            sizes = done["tokens"] * self._dtype.itemsize, done["documents"] * 8
            return done if sizes == (shard.stat().st_size, starts.stat().st_size) else None
        except (KeyError, OSError, TypeError, ValueError):
            return None

    def _temporary(self) -> Path:
        return self._folder / f".{self._split}.{os.getpid()}.tmp"

    def _note(self, number: int) -> Path:
        return self._folder / f".{self._split}-{number:05d}.json"

    def _starts_of(self, number: int) -> Path:
        return self._folder / f".{self._split}-{number:05d}.starts"


def dtype_for(vocabulary: int) -> str:
    """The smallest dtype that holds the tokens."""
    return "uint16" if vocabulary <= 2**16 else "uint32"


def write_manifest(
    folder: Path, tokenizer: Tokenizer, splits: Mapping[str, Any], preparation: Mapping[str, Any]
) -> None:
    """Write the manifest into the folder of the shards."""
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "dtype": dtype_for(tokenizer.vocabulary),
        "tokenizer": describe_tokenizer(tokenizer),
        "splits": {name: splits[name] for name in SPLITS},
        "preparation": dict(preparation),
    }
    write_json(folder / MANIFEST, manifest)


def publish(folder: Path, out: Path) -> None:
    """Remove the temporary files, then rename the folder: the corpus appears whole or not at all."""
    for path in folder.rglob(".*"):
        path.unlink()
    folder.replace(out)


def write_corpus(
    out: str | os.PathLike[str],
    tokenizer: Tokenizer,
    train: Iterable[ArrayLike],
    validation: Iterable[ArrayLike],
    *,
    shard_tokens: int = SHARD_TOKENS,
) -> Corpus:
    """A corpus from documents that are tokens already, such as synthetic ones."""
    out = Path(out)
    if out.exists():
        raise FileExistsError(f"{out} must not exist yet")
    folder = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    folder.mkdir(parents=True)
    try:
        splits = {}
        lengths = tokenizer.byte_lengths()
        for name, documents in zip(SPLITS, (train, validation), strict=True):
            with SplitWriter(folder, name, dtype_for(tokenizer.vocabulary), shard_tokens) as writer:
                for tokens in documents:
                    size = 0 if lengths is None else int(lengths[numpy.asarray(tokens, int)].sum())
                    writer.add(tokens, size)
                splits[name] = writer.finish()
        save_tokenizer(tokenizer, folder / TOKENIZER)
        write_manifest(folder, tokenizer, splits, {"sources": ["tokens"]})
        publish(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Corpus(out)


def _into_place(temporary: Path, path: Path) -> None:
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
