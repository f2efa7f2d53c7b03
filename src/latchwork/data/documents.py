"""Documents from files: txt, jsonl and parquet, plain or compressed as gz or zst."""

from __future__ import annotations

import glob
import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from latchwork.extras import optional
from latchwork.files import open_file

FORMATS = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = (".gz", ".zst")
PIECE = 1 << 20  # bytes read at a time
PACKED_PIECE = 1 << 10  # bytes of a .zst read at a time: each may become 32 kB
DOCUMENT = 1 << 27  # the most bytes of a document, or of a line of jsonl
ROWS = 64  # of parquet, read at a time
RATIO = 1000


class Source(Protocol):
    """Where documents come from. It can be read again, and gives the same documents."""

    @property
    def name(self) -> str:
        """The name in manifests and errors."""

    def stamp(self) -> list[Any]:
        """Plain values that change when the source changes. They are found without reading it."""

    def __iter__(self) -> Iterator[str]:
        """The documents, without those that are empty or white space."""


@dataclass(frozen=True)
class TextFile:
    """A file of documents.

    field: where the text is in a line of jsonl or a row of parquet. separator: cuts a txt file into documents; without
    one it is one document. A document, or line of jsonl, of more than 2**27 bytes is an error: no more is held in
    memory, however small the file that it is unpacked from.
    """

    path: Path
    field: str = "text"
    separator: str | None = None

    @property
    def name(self) -> str:
        """Its path as it was given."""
        return self.path.as_posix()

    def stamp(self) -> list[Any]:
        """Name, size and time of the last change."""
        status = self.path.stat()
        return [self.name, status.st_size, status.st_mtime_ns]

    def __iter__(self) -> Iterator[str]:
        """The documents. A file without any is an error, and so is one of another format than its name says."""
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
        separator = None if self.separator is None else self.separator.encode()
        for number, content in enumerate(self._split(separator), 1):
            yield self._decode(content, "" if separator is None else f" in document {number}")

    def _split(self, separator: bytes | None) -> Iterator[bytearray]:
        """The content of the file, cut by the separator. A part that is too large is an error before it is all read."""
        rest = bytearray()
        for piece in _pieces(self.path):
            start = 0 if separator is None else max(0, len(rest) - len(separator) + 1)
            rest += piece
            while separator is not None and (place := rest.find(separator, start)) >= 0:
                yield self._bounded(rest[:place])
                del rest[: place + len(separator)]
                start = 0
            self._bounded(rest)
        yield rest

    def _bounded(self, content: bytearray) -> bytearray:
        if len(content) > DOCUMENT:
            raise ValueError(
                f"{self.path} must have documents of at most {DOCUMENT:,} bytes; it has a larger one. A separator cuts "
                "a .txt into documents; .jsonl has one in each line"
            )
        return content

    def _lines(self) -> Iterator[str]:
        for number, line in enumerate(self._split(b"\n"), 1):
            where = f" in line {number}"
            if not (text := self._decode(line, where)).strip():
                continue
            try:
                values = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{self.path} is not JSON{where}, or half-written: {error}") from None
            if not isinstance(values, dict) or not isinstance(values.get(self.field), str):
                has = ", ".join(map(repr, values)) if isinstance(values, dict) else type(values).__name__
                raise ValueError(f"{self.path} must have a text under {self.field!r}{where}; it has {has:.200}")
            yield self._encodable(values[self.field], where)

    def _rows(self) -> Iterator[str]:
        parquet, library = (optional("lm", name) for name in ("pyarrow.parquet", "pyarrow"))
        open_file(self.path).close()  # its errors name the file
        with tempfile.TemporaryFile() as unpacked:
            file: Any = self.path
            if self.path.suffix in COMPRESSIONS:
                for piece in _pieces(self.path):
                    unpacked.write(piece)
                    if problem := _bomb(self.path.stat().st_size, unpacked.tell()):
                        raise ValueError(f"{self.path}: {problem}")
                file = unpacked
            try:
                table = parquet.ParquetFile(file)
                if self.field not in table.schema_arrow.names:
                    names = ", ".join(map(repr, table.schema_arrow.names))
                    raise KeyError(f"it must have a column {self.field!r}; it has {names}")
                for each in _column_chunks(table.metadata, self.field):
                    if problem := _bomb(each.total_compressed_size, each.total_uncompressed_size):
                        raise KeyError(problem)
                for batch in table.iter_batches(batch_size=ROWS, columns=[self.field]):
                    for text in (each.as_py() for each in batch.column(0)):
                        if text is not None and not isinstance(text, str):
                            raise KeyError(f"its column {self.field!r} must be text; it is {batch.schema.types[0]}")
                        if text is not None and len(text) > DOCUMENT:
                            raise KeyError(f"it must have documents of at most {DOCUMENT:,} bytes; it has a larger one")
                        yield text or ""
            except KeyError as error:
                raise ValueError(f"{self.path}: {error.args[0]}") from None
            except (OSError, ValueError, library.ArrowException) as error:
                raise ValueError(f"{self.path} is not parquet, or half-written: {error}") from error

    def _decode(self, content: bytearray, where: str) -> str:
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
    """The files of paths, folders and patterns, in the order given; those of a folder in the order of their names."""
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


def _column_chunks(metadata: Any, field: str) -> Iterator[Any]:
    """The metadata of a column in each row group of a parquet file."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == field:
                yield column


def _bomb(packed: int, unpacked: int) -> str | None:
    """The complaint about a decompression bomb, or None. Text compresses to a tenth, not to a thousandth."""
    return f"it unpacks {packed:,} bytes to {unpacked:,} or more" if unpacked > max(DOCUMENT, RATIO * packed) else None


def _pieces(path: Path) -> Iterator[bytes]:
    """The content of a file, decompressed, in pieces. A truncated file is an error."""
    with open_file(path) as file:
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
    zstandard = optional("lm", "zstandard")
    frame = None
    while piece := file.read(min(PIECE, PACKED_PIECE)):
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
