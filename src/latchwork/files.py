"""Small files: written whole or not at all, read within bounds, and checked, since others may have written them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path, PurePath
from typing import Any, BinaryIO

MOST_BYTES = 1 << 26  # of a JSON file, where the caller does not say
MOST_DEPTH = 64  # lists and objects inside each other


def write_text(path: Path, text: str) -> None:
    """Write under a temporary name, then rename: a reader finds the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """`write_text` of values as JSON. JSON has no NaN and no infinity: they are written as null."""
    write_text(path, json.dumps(finite_values(values), indent=1, allow_nan=False) + "\n")


def open_file(path: Path) -> BinaryIO:
    """Open a file to read its bytes. A pipe or a device may never end: it is an error."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} must be a file; it is a pipe, a socket or a device")
    return path.open("rb")  # its error names the file


def read_text(path: Path, max_bytes: int = MOST_BYTES) -> str:
    """The text of a file in UTF-8, without a byte order mark. More than max_bytes is an error."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if size <= max_bytes else b""
    if max(size, len(content)) > max_bytes:
        raise ValueError(f"{path} must have at most {max_bytes:,} bytes; it has more")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8: {error.reason} at byte {error.start}") from None


def read_json(path: Path, max_bytes: int = MOST_BYTES) -> dict[str, Any] | None:
    """The values in a JSON file, or None if it is not there. All that is wrong with it is a ValueError or OSError."""
    try:
        text = read_text(path, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    values = parse_json(text, path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(values).__name__}")
    return values


def parse_json(text: str, name: object) -> Any:
    """The values in a text. A key that comes twice, NaN, infinity, and lists too deep in lists are errors.

    name: of the file, for the error.
    >>> parse_json('{"a": 1, "a": 2}', "some.json")
    Traceback (most recent call last):
    ...
    ValueError: some.json must be JSON: the key 'a' is there twice
    """
    try:
        values = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_number)
    except RecursionError:
        raise ValueError(f"{name} must be JSON nested at most {MOST_DEPTH} deep; it is nested deeper") from None
    except ValueError as error:
        raise ValueError(f"{name} must be JSON: {error}") from None
    level, depth = [values], 0
    while level := [inner for each in level for inner in _inside_of(each) if isinstance(inner, (dict, list))]:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"{name} must be JSON nested at most {MOST_DEPTH} deep; it is nested deeper")
    return values


def inside(folder: Path, name: object, source: object, *, links: bool = False) -> Path:
    """The path of the file that another file names; it must lie inside the folder.

    source: the file that names it, for the error. links: whether it may be a link to a file elsewhere.
    >>> inside(Path("corpus"), "../../etc/passwd", "corpus/manifest.json")
    Traceback (most recent call last):
    ...
    ValueError: corpus/manifest.json must name files inside its folder; it names '../../etc/passwd'
    """
    wrong = f"{source} must name files inside its folder; it names {name!r:.200}"
    parts = PurePath(name).parts if isinstance(name, str) and name.strip() else ()
    if not isinstance(name, str) or not parts or PurePath(name).is_absolute() or ".." in parts:
        raise ValueError(wrong)
    try:
        found, home = (Path(os.path.realpath(each)) for each in (folder / name, folder))
    except ValueError:  # a name that no file can have
        raise ValueError(wrong) from None
    if not links and home not in found.parents:
        raise ValueError(f"{wrong}, which leads to {found}")
    return folder / name


def json_hash(values: Mapping[str, Any]) -> str:
    """The SHA-256 of values as JSON, whatever their order and spacing in a file."""
    return hashlib.sha256(json.dumps(finite_values(values), sort_keys=True).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def check_hashes(folder: Path, hashes: object, source: object, max_bytes: int | None = None) -> None:
    """Compare the files of a folder with the SHA-256 that another file, the source, says of each: {name: hash}.

    max_bytes: of a file; a larger one is an error before it is read.
    """
    if not isinstance(hashes, dict):
        raise ValueError(f"{source} must say the SHA-256 of each file by its name; got {hashes!r:.80}")
    for name, expected in hashes.items():
        path = inside(folder, name, source)
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing, though {source} names it")
        if max_bytes is not None and path.stat().st_size > max_bytes:
            raise ValueError(f"{path} must have at most {max_bytes:,} bytes; it has {path.stat().st_size:,}")
        if (found := file_hash(path)) != expected:
            raise ValueError(f"{path} has changed: by {source} its SHA-256 must be {expected!r:.80}; it is {found}")


def finite_values(values: Any) -> Any:
    """The values as `write_json` writes them: NaN and infinity are None, tuples are lists."""
    if isinstance(values, float):
        return values if isfinite(values) else None
    if isinstance(values, Mapping):
        return {key: finite_values(value) for key, value in values.items()}
    return [finite_values(value) for value in values] if isinstance(values, (list, tuple)) else values


def _inside_of(values: dict[str, Any] | list[Any]) -> Sequence[Any]:
    return list(values.values()) if isinstance(values, dict) else values if isinstance(values, list) else ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r:.80} is there twice")
    return values


def _number(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _no_number(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text:.20} is no number that JSON has")
