"""Small trained networks that are proved right for words of all lengths, inside the package, each with its proof.

>>> from latchwork import zoo
>>> zoo.names()[:1]
['fflm']
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from latchwork.files import read_json
from latchwork.models import MinMaxRNC_LM


def names() -> list[str]:
    """What there is."""
    return sorted(each.name for each in files(__name__).iterdir() if each.joinpath("proof.json").is_file())


def load(name: str) -> MinMaxRNC_LM:
    """A network, in eval mode."""
    with as_file(files(__name__) / _known(name)) as folder:
        return MinMaxRNC_LM.load(folder)


def proof(name: str) -> dict[str, Any]:
    """The record of its proof: the task, and the fields of `latchwork.automata.Proof`."""
    with as_file(files(__name__) / _known(name) / "proof.json") as path:
        return read_json(path) or {}


def _known(name: str) -> str:
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}; got {name!r}")
    return name
