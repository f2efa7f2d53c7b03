"""What several commands take: paths, numbers and devices, checked before any work starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latchwork.signals import exit_code

if TYPE_CHECKING:
    from latchwork.models import MinMaxRNC_LM

MODEL_HELP = "a network of the zoo, the folder of a model, or the folder of a run"
Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
MOST_THREADS = 4096  # beyond it torch fails, or waits without end
MOST = 2**31 - 1  # of anything that is counted, where no less is said
MOST_STEPS = 1 << 32  # of a sequence in evaluation, which keeps 16 bytes for each


def path(text: str | Path) -> Path:
    """A path. An empty one would mean this folder."""
    if not os.fspath(text):
        raise typer.BadParameter("must not be empty; '.' is this folder")
    return Path(text)


def number(value: float | None) -> float | None:
    """A number that is one: neither nan nor infinite."""
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"must be finite; got {value}")
    return value


def device(text: str | None) -> str | None:
    """The name of a device that is here."""
    import torch

    if text not in (None, "cpu", "cuda"):
        raise typer.BadParameter(f"must be cpu or cuda; got {text!r}")
    if text == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("'cuda' is not here: torch finds no GPU on this machine")
    return text


def check_out(out: Path, folder: bool) -> None:
    """Raise OSError if a file, or a folder, cannot be made at `out`: now rather than after the work."""
    if out.exists() and out.is_dir() != folder:
        kind = NotADirectoryError if folder else IsADirectoryError
        raise kind(f"{out} must be a {'folder' if folder else 'file'}; it is a {'file' if folder else 'folder'}")
    parent = next(each for each in (out, *out.absolute().parents) if each.exists())
    if not folder and parent != out and parent != out.absolute().parent:
        raise FileNotFoundError(f"{out.parent} must be a folder that is there, for {out.name}")
    if parent != out and not parent.is_dir():
        raise NotADirectoryError(f"{out} cannot be made: {parent} is a file")
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"{out} cannot be written: {parent} is read-only")


def minmax_model(name: str, command: str) -> MinMaxRNC_LM:
    """The MinMax network of a zoo name, a model's folder or a run's folder; another model is an error that says why."""
    from latchwork.load import load_model
    from latchwork.models import MinMaxRNC_LM

    model = load_model(name)
    if not isinstance(model, MinMaxRNC_LM):
        raise ValueError(
            f"{name} holds a {type(model).__name__}; {command} needs a MinMax network, whose states are finitely many"
        )
    return model


@contextmanager
def resumable(where: str) -> Iterator[None]:
    """Say how to resume if SIGINT or SIGTERM ends what is inside; where: what the same command goes back to."""
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo(f"interrupted: the same command resumes from {where}", err=True)
        raise typer.Exit(exit_code(error)) from None
