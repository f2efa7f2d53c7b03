"""A configuration from the command line: a name or a file, and changes to single fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latchwork.files import read_json, read_text
from latchwork.training.config import PretrainingConfig
from latchwork.training.presets import find_config

MOST_BYTES = 1 << 20


def read_config(name: str, changes: Sequence[str] = ()) -> PretrainingConfig:
    """The configuration of that name, or of a .json or .toml file, with changes such as "batch.micro=8".

    >>> read_config("char-1m", ["batch.micro=8", "seed=3"]).batch.micro
    8
    """
    is_file = Path(name).suffix in (".json", ".toml")
    values = _read_file(Path(name)) if is_file else find_config(name).to_dict()
    try:
        for change in changes:
            _set(values, change)
        return PretrainingConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}" if is_file else str(error)) from None


def _read_file(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        values = read_json(path, MOST_BYTES)
        if values is None:
            raise ValueError(f"{path} is not there")
        return values
    try:
        import tomllib

        return tomllib.loads(read_text(path, MOST_BYTES))
    except FileNotFoundError:
        raise ValueError(f"{path} is not there") from None
    except ImportError:
        raise ValueError(f"{path}: TOML needs Python 3.11 or later; write JSON") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be TOML: {error}") from None


def _set(values: dict[str, Any], change: str) -> None:
    """Set one field; the value is JSON, or else the text as it is."""
    key, sign, text = change.partition("=")
    if not key or not sign:
        raise ValueError(f"a change must be field=value, as in batch.micro=8; got {change!r}")
    *path, last = key.split(".")
    for part in path:
        values = values.setdefault(part, {})
        if not isinstance(values, dict):
            raise ValueError(f"{key!r} names a field of {part!r}, which has none")
    try:
        values[last] = json.loads(text)
    except ValueError:
        values[last] = text
