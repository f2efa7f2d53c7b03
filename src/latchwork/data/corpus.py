"""Tokens from disk: a folder of memory-mapped shards, an index of documents and a manifest with hashes.

manifest.json          what is here: format, dtype, tokenizer; the tokens, documents and shards of each split
tokenizer/             the tokenizer's files, so that the folder needs nothing else
train-00000.tokens ... the tokens, raw little-endian uint16 or uint32, one document after the other
train.starts           where each document begins, raw little-endian int64; and the same for validation
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from latchwork.data.tokenizers import MOST_BYTES, Tokenizer, load_tokenizer
from latchwork.files import check_hashes, inside, read_json

FORMAT, VERSION = "latchwork-corpus", 1
MANIFEST, TOKENIZER = "manifest.json", "tokenizer"
DTYPES: dict[str, numpy.dtype[Any]] = {"uint16": numpy.dtype("<u2"), "uint32": numpy.dtype("<u4")}
SPLITS = ("train", "validation")
FILE_KEYS = ("file", "sha256")  # of each file that a manifest names


class Corpus:
    """What `latchwork data prepare` made: the splits `train` and `validation`, and the tokenizer.

    Opening it checks that every file is there with its size; `verify` reads them all.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        tokenizer = self.manifest["tokenizer"]
        self.vocabulary: int = tokenizer["vocabulary"]
        self.end: int | None = tokenizer["end"]
        self.train = TokenSplit(self.path, self.manifest["splits"]["train"], self.manifest["dtype"])
        self.validation = TokenSplit(self.path, self.manifest["splits"]["validation"], self.manifest["dtype"])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens. It is read at the first use, and its hashes are checked."""
        self._check_tokenizer()
        found = load_tokenizer(self.path / TOKENIZER)
        if (found.vocabulary, found.end) != (self.vocabulary, self.end):
            raise ValueError(
                f"{self.path / MANIFEST}: a vocabulary of {self.vocabulary} that ends with {self.end}, but its "
                f"tokenizer has {found.vocabulary} and {found.end}"
            )
        return found

    def verify(self) -> None:
        """Read every file and compare it with its hash; compare tokens with the vocabulary, starts with each other."""
        self._check_tokenizer()
        _ = self.tokenizer
        for split in (self.train, self.validation):
            split.verify(self.vocabulary)

    def _check_tokenizer(self) -> None:
        files, manifest = self.manifest["tokenizer"]["files"], self.path / MANIFEST
        check_hashes(self.path / TOKENIZER, files, manifest, MOST_BYTES)

    def __reduce__(self) -> tuple[Any, ...]:
        """A process that unpickles this opens the files itself."""
        return Corpus, (self.path,)


class TokenSplit:
    """The tokens of one split, numbered from 0 across all shards. Reading takes memory only for what is read."""

    def __init__(self, folder: Path, values: Mapping[str, Any], dtype: str) -> None:
        self._made_of = folder, values, dtype
        index, manifest = values["starts"], folder / MANIFEST
        self._hashes = {each["file"]: each["sha256"] for each in (*values["shards"], index)}
        paths = [inside(folder, each["file"], manifest) for each in values["shards"]]
        counts = [each["tokens"] for each in values["shards"]]
        self._paths = paths
        self._shards = [map_file(path, DTYPES[dtype], count) for path, count in zip(paths, counts, strict=True)]
        self._ends = numpy.cumsum([len(each) for each in self._shards], dtype=numpy.int64)
        self._index = inside(folder, index["file"], manifest)
        self.starts: NDArray[numpy.int64] = map_file(self._index, numpy.dtype("<i8"), values["documents"])
        self.bytes: int = values["bytes"]  # of the text that the tokens stand for, in UTF-8
        self._tokens = int(self._ends[-1]) if len(self._ends) else 0
        if self._tokens != values["tokens"]:
            raise ValueError(f"{manifest}: {values['tokens']} tokens, but its shards have {self._tokens}")

    def __len__(self) -> int:
        """The number of tokens."""
        return self._tokens

    @property
    def documents(self) -> int:
        """The number of documents."""
        return len(self.starts)

    def read(self, start: int, length: int) -> NDArray[numpy.int64]:
        """The tokens start, ..., start + length - 1."""
        if length < 0 or start < 0 or start + length > self._tokens:
            raise IndexError(
                f"start and length must lie within the {self._tokens} tokens of the split; got {start} and {length}"
            )
        out = numpy.empty(length, numpy.int64)
        shard = int(numpy.searchsorted(self._ends, start, side="right"))
        done = 0
        while done < length:
            here = self._shards[shard]
            first = start + done - (int(self._ends[shard]) - len(here))
            piece = here[first : first + length - done]
            out[done : done + len(piece)] = piece
            done += len(piece)
            shard += 1
        return out

    def document(self, number: int) -> NDArray[numpy.int64]:
        """The tokens of one document, with the token that ends it where the tokenizer has one."""
        if not 0 <= number < self.documents:
            raise IndexError(f"number must be at least 0 and less than the {self.documents} documents; got {number}")
        start = int(self.starts[number])
        stop = int(self.starts[number + 1]) if number + 1 < self.documents else self._tokens
        return self.read(start, stop - start)

    def verify(self, vocabulary: int) -> None:
        """See `Corpus.verify`."""
        folder = self._made_of[0]
        check_hashes(folder, self._hashes, folder / MANIFEST)
        for path, shard in zip(self._paths, self._shards, strict=True):
            for first in range(0, len(shard), 1 << 24):
                if (most := int(shard[first : first + (1 << 24)].max())) >= vocabulary:
                    raise ValueError(f"{path} has the token {most}; the vocabulary has {vocabulary}")
        inside = self.starts[0] == 0 and self.starts[-1] < self._tokens if self.documents else self._tokens == 0
        if not inside or (numpy.diff(self.starts) <= 0).any():
            raise ValueError(f"{self._index} must hold growing numbers from 0 to less than {self._tokens}")

    def __reduce__(self) -> tuple[Any, ...]:
        """A process that unpickles this opens the files itself."""
        return TokenSplit, self._made_of


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a corpus, its form checked."""
    path = folder / MANIFEST
    values = read_json(path)
    if values is None:
        raise FileNotFoundError(f"{folder} holds no corpus: it has no {MANIFEST}; `latchwork data prepare` makes one")
    if values.get("format") != FORMAT:
        raise ValueError(f'{path} is not the manifest of a corpus: it lacks "format": "{FORMAT}"')
    if values.get("version") != VERSION:
        raise ValueError(f"{path} has version {values.get('version')!r}; this release reads version {VERSION}")
    if values.get("dtype") not in list(DTYPES):  # a list, since it may be no text
        raise ValueError(f"{path}: dtype must be one of {', '.join(DTYPES)}; got {values.get('dtype')!r}")
    try:
        tokenizer, splits = values["tokenizer"], [values["splits"][name] for name in SPLITS]
        numbers = [split[key] for split in splits for key in ("tokens", "documents", "bytes")]
        numbers += [shard[key] for split in splits for shard in split["shards"] for key in ("tokens", "documents")]
        texts = [file[key] for split in splits for file in (split["starts"], *split["shards"]) for key in FILE_KEYS]
        texts += [tokenizer["kind"], tokenizer["sha256"], *tokenizer["files"], *tokenizer["files"].values()]
        numbers += [tokenizer["vocabulary"], 0 if tokenizer["end"] is None else tokenizer["end"]]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not whole: {error}") from error
    for kind, wrong in (
        ("a number of at least 0", [each for each in numbers if type(each) is not int or each < 0]),
        ("a text", [each for each in texts if not isinstance(each, str)]),
    ):
        if wrong:
            raise ValueError(f"{path} is not whole: {wrong[0]!r:.80} must be {kind}")
    return values


def map_file(path: Path, dtype: numpy.dtype[Any], count: int) -> NDArray[Any]:
    """A file of `count` numbers as a memory-mapped array."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing, or no file, though {MANIFEST} names it")
    if (size := path.stat().st_size) != count * dtype.itemsize:
        raise ValueError(f"{path} must have {count * dtype.itemsize} bytes, says the manifest; it has {size}")
    return numpy.memmap(path, dtype, "r", shape=(count,)) if count else numpy.empty(0, dtype)
