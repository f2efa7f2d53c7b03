"""The optional packages: asked for before any work starts."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def need(extra: str, *modules: str) -> None:
    """Raise ImportError, which says what to install, if a module is missing; extra: what of latchwork brings it.

    >>> need("lm", "json", "no_such_module")
    Traceback (most recent call last):
    ...
    ImportError: no_such_module is missing: pip install 'latchwork[lm]'
    """
    if missing := [each for each in modules if find_spec(each) is None]:
        names = ", ".join(missing)
        raise ImportError(f"{names} {'is' if len(missing) == 1 else 'are'} missing: pip install 'latchwork[{extra}]'")


def optional(extra: str, module: str) -> Any:
    """An optional module, imported now; where it is missing, the error of `need`."""
    need(extra, module.partition(".")[0])
    return import_module(module)
