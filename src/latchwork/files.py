"""Small files: written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write under a temporary name, then rename: a reader finds the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """`write_text` of values as JSON."""
    write_text(path, json.dumps(values, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The values in a JSON file, or None if it is not there."""
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(values).__name__}")
    return values
