"""Documents from files: txt, jsonl and parquet, each also as gz or zst."""

from __future__ import annotations

import glob
import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Protocol

FORMATS = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".zst")
PIECE = 1 << 20


class Source(Protocol):
    """Where documents come from. Reading it twice gives the same ones."""

    @property
    def name(self) -> str:
        """As a manifest and an error call it."""

    def stamp(self) -> list[Any]:
        """Plain values that are equal only while nothing has changed; found without reading it."""

    def __iter__(self) -> Iterator[str]:
        """The documents. One without a visible character is left out."""


@dataclass(frozen=True)
class TextFile:
    """A file of documents.

    field: where the text is in a line of jsonl or a row of parquet. separator: cuts a txt file into documents; without
    one it is one document.
    """

    path: Path
    field: str = "text"
    separator: str | None = None

    @property
    def name(self) -> str:
        """Its path, as it was given."""
        return self.path.as_posix()

    def stamp(self) -> list[Any]:
        """Name, size and time of the last change."""
        status = self.path.stat()
        return [self.name, status.st_size, status.st_mtime_ns]

    def __iter__(self) -> Iterator[str]:
        """The documents. None at all is an error, as is a file that is not what its name says."""
        read: dict[str, Callable[[], Iterator[str]]] = {
            ".txt": self._texts,
            ".jsonl": self._lines,
            ".parquet": self._rows,
        }
        empty = True
        for text in read[file_format(self.path)]():
            if text and not text.isspace():
                empty = False
                yield text
        if empty:
            raise ValueError(f"{self.path} is empty: it has no document with a visible character")

    def _texts(self) -> Iterator[str]:
        if self.separator is None:
            yield self._decode(b"".join(_pieces(self.path)), "")
            return
        separator, rest, number = self.separator.encode(), b"", 1
        for piece in _pieces(self.path):
            *whole, rest = (rest + piece).split(separator)
            for each in whole:
                yield self._decode(each, f" in document {number}")
                number += 1
        yield self._decode(rest, f" in document {number}")

    def _lines(self) -> Iterator[str]:
        for number, line in enumerate(_split_lines(_pieces(self.path)), 1):
            where = f" in line {number}"
            if not (text := self._decode(line, where)).strip():
                continue
            try:
                values = json.loads(text)
            except ValueError as error:
                raise ValueError(f"{self.path} is not JSON{where}, or half-written: {error}") from None
            if not isinstance(values, dict) or not isinstance(values.get(self.field), str):
                has = ", ".join(map(repr, values)) if isinstance(values, dict) else type(values).__name__
                raise ValueError(f"{self.path} must have a text under {self.field!r}{where}; it has {has}")
            yield self._encodable(values[self.field], where)

    def _rows(self) -> Iterator[str]:
        parquet = _library("pyarrow.parquet", "pyarrow")
        with tempfile.TemporaryFile() as unpacked:
            file: Any = self.path
            if self.path.suffix in COMPRESSIONS:
                for piece in _pieces(self.path):
                    unpacked.write(piece)
                file = unpacked
            try:
                table = parquet.ParquetFile(file)
                if self.field not in table.schema_arrow.names:
                    names = ", ".join(map(repr, table.schema_arrow.names))
                    raise KeyError(f"it must have a column {self.field!r}; it has {names}")
                for batch in table.iter_batches(batch_size=1024, columns=[self.field]):
                    for text in batch.column(0).to_pylist():
                        if text is not None and not isinstance(text, str):
                            raise KeyError(f"its column {self.field!r} must be text; it is {batch.schema.types[0]}")
                        yield text or ""
            except KeyError as error:
                raise ValueError(f"{self.path}: {error.args[0]}") from None
            except (OSError, ValueError, UnicodeDecodeError) as error:
                raise ValueError(f"{self.path} is not parquet, or half-written: {error}") from error

    def _decode(self, content: bytes, where: str) -> str:
        if (place := content.find(b"\0")) >= 0:
            raise ValueError(f"{self.path} is binary, not text: byte {place}{where} is 0")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} is not text in UTF-8, or half-written: {error.reason} at byte {error.start}{where}"
            ) from None

    def _encodable(self, text: str, where: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{self.path} has half a surrogate pair at character {error.start}{where}") from None
        return text


def find_files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that paths, folders and patterns mean: in the order given, a folder's by their names."""
    found: list[Path] = []
    for each in (os.fspath(path) for path in paths):
        path = Path(each)
        if path.is_dir():
            inside = (file for file in path.rglob("*") if file.is_file() and _format(file) is not None)
            files = sorted(
                file for file in inside if not any(_is_hidden(part) for part in file.relative_to(path).parts)
            )
            if not files:
                raise ValueError(f"{path} has no file that ends in {_endings()}")
        elif path.exists():
            file_format(path)
            files = [path]
        else:
            files = sorted(Path(file) for file in glob.glob(each, recursive=True) if _format(Path(file)) is not None)
            if not files:
                raise FileNotFoundError(f"{each} is no file, no folder and no pattern that finds files")
        found.extend(files)
    return found


def file_format(path: Path) -> str:
    """.txt, .jsonl or .parquet."""
    if (found := _format(path)) is None:
        raise ValueError(f"{path} must end in {_endings()}")
    return found


def _format(path: Path) -> str | None:
    name = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    return name.suffix if name.suffix in FORMATS else None


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _endings() -> str:
    return f"{', '.join(FORMATS)}, or these with {' or '.join(COMPRESSIONS)} after them"


def _pieces(path: Path) -> Iterator[bytes]:
    """The content of a file, unpacked, piece by piece. One that was cut off is an error."""
    with path.open("rb") as file:
        try:
            if path.suffix == ".gz":
                unpacked = gzip.GzipFile(fileobj=file)
                yield from iter(lambda: unpacked.read(PIECE), b"")
            elif path.suffix == ".zst":
                yield from _unpack_zst(file)
            else:
                yield from iter(lambda: file.read(PIECE), b"")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged or half-written: {error}") from error


def _unpack_zst(file: BinaryIO) -> Iterator[bytes]:
    zstandard = _library("zstandard", "zstandard")
    frame = None
    while piece := file.read(PIECE):
        while piece:
            frame = zstandard.ZstdDecompressor().decompressobj() if frame is None else frame
            try:
                yield frame.decompress(piece)
            except zstandard.ZstdError as error:
                raise EOFError(error) from error
            piece = b""
            if frame.eof:
                piece, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("it ends in the middle of a frame")


def _split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []  # of a line that goes on in the next piece
    for piece in pieces:
        first, *more = piece.split(b"\n")
        rest.append(first)
        if more:
            yield b"".join(rest)
            yield from more[:-1]
            rest = [more[-1]]
    yield b"".join(rest)


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(f"this file needs {package}: pip install 'latchwork[lm]'") from None
