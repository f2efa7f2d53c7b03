"""The packages that some baselines are made of, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load(module: str) -> Any:
    """Import a module of an optional package; the error says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this baseline needs {module} ({error}): pip install 'latchwork[baselines]'") from error
