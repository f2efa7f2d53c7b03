"""Safetensors files: written whole or not at all with their own SHA-256 inside, and checked against it when read.

The hash stands in the metadata of the file's header, so that one rename puts both into place. It is that of the whole
file in which its own 64 digits are zeros. A file from elsewhere has none, and is read as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from latchwork.files import open_file

HASH = "latchwork.sha256"
ZEROS = "0" * 64


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors, and metadata beside them, under a temporary name; then rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        plain = {name: value.detach().contiguous() for name, value in tensors.items()}
        text = json.dumps({"format": "pt", **(metadata or {}), HASH: ZEROS}, separators=(",", ":"))
        room = {"": " " * (len(text) - len('{"":""}'))}  # the library would write our keys in an order drawn at random
        save_file(plain, temporary, room)
        with temporary.open("r+b") as file:
            head = file.read(len(text) + 64)
            file.seek(head.index(json.dumps(room, separators=(",", ":")).encode()))
            file.write(text.encode())
            file.flush()
            place, digest = _digest(temporary, ZEROS)
            file.seek(place)
            file.write(digest.encode())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_shapes(path: Path) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """The shapes of all tensors and the metadata, from the header alone."""
    with open_tensors(path) as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        return shapes, file.metadata() or {}


def read_tensors(path: Path, device: str | torch.device = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file and its metadata. A file that has changed since `write_tensors` is an error."""
    with open_tensors(path, device) as file:
        metadata = file.metadata() or {}
        check_hash(path, metadata)
        return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 - not a dictionary


def check_hash(path: Path, metadata: Mapping[str, str]) -> None:
    """Raise ValueError if the hash in a file's metadata, where there is one, is not that of the file."""
    if (expected := metadata.get(HASH)) is not None and (found := _digest(path, expected)[1]) != expected:
        raise ValueError(f"{path} has changed: its SHA-256 must be {expected:.80}; it is {found}")


@contextmanager
def open_tensors(path: Path, device: str | torch.device = "cpu") -> Iterator[Any]:
    """`safetensors.safe_open`, whose errors then name the file."""
    open_file(path).close()  # its errors name the file
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            yield file
    except (SafetensorError, TypeError) as error:  # TypeError: a shape that no tensor has
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error


def _digest(path: Path, written: str) -> tuple[int, str]:
    """Where in the file the hash stands that is written there, and what it should be."""
    with open_file(path) as file:
        size = file.read(8)
        header = file.read(int.from_bytes(size, "little"))
        mark = f'"{HASH}":"'.encode()
        place = header.find(mark + written.encode()) + len(mark)
        digest = hashlib.sha256(size + header[:place] + ZEROS.encode() + header[place + len(ZEROS) :])
        while piece := file.read(1 << 20):
            digest.update(piece)
    return len(size) + place, digest.hexdigest()
