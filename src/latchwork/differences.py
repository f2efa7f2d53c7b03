"""What differs between the config that a folder holds and the one asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = 8  # differences in an error, at most
WIDTH = 70  # characters of a value, at most
MISSING = object()


def differences(there: Any, here: Any, name: str = "") -> list[str]:
    """One line for each field that differs. Values are plain, as JSON gives them back.

    >>> differences({"length": 4096, "seed": 0}, {"length": 300, "seed": 0})
    ['length is 4096 there and 300 here']
    >>> differences({"model": {"width": 8}}, {"model": {"width": 8, "depth": 2}})
    ['model.depth is missing there and 2 here']
    """
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        prefix = f"{name}." if name else ""
        return [
            line
            for key in dict.fromkeys([*here, *there])
            for line in differences(there.get(key, MISSING), here.get(key, MISSING), f"{prefix}{key}")
        ]
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = enumerate(zip(there, here, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, f"{name}[{index}]")]
    return [] if there == here else [f"{name or 'the config'} is {_show(there)} there and {_show(here)} here"]


def summary(lines: list[str]) -> str:
    """The first differences in one line, and how many more there are."""
    rest = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + rest


def _show(value: Any) -> str:
    if value is MISSING:
        return "missing"
    text = repr(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
