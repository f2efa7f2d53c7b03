"""Which backend runs, said in one place, and how an operation of ours becomes one of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from latchwork.ops import transforms

NAMES = ("auto", "reference", "torch", "cpu", "triton")
_library = torch.library.Library("latchwork", "FRAGMENT")  # type: ignore[no-untyped-call]
_asked = "auto"  # what `use_backend` says


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Within it, this backend runs everything whose own argument says "auto": scans, layers, losses, whole models.

    "reference": the definitions, loops in torch. "torch": torch operations, on any device. "cpu": the C++ kernel.
    "triton": the kernels for GPUs. "auto": the best that takes the tensors. One that is asked for by name and cannot
    run is an error, never replaced. It holds for the whole process, not for one thread.

    >>> from latchwork import minmax_scan
    >>> r, s = torch.tensor([[[9.0], [9.0]]]), torch.tensor([[[5.0], [0.0]]])
    >>> with use_backend("reference"):
    ...     minmax_scan(r, s, torch.zeros(1)).flatten()
    tensor([5., 5.])
    """
    global _asked
    if name not in NAMES:
        raise ValueError(f"backend {name!r} is unknown; there are {', '.join(NAMES)}")
    before, _asked = _asked, name
    try:
        yield
    finally:
        _asked = before


def asked_for(name: str = "auto") -> str:
    """The backend that a call asks for: its own argument, or where that is "auto" what `use_backend` says."""
    return _asked if name == "auto" else name


def register(
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    save: Callable[..., None] | None = None,
    gradient: Callable[..., Any] | None = None,
) -> None:
    """Make run an operation `torch.ops.latchwork.NAME`, with a fake for tracing and a gradient.

    Without a gradient it has none, and asking for one is an error that says so.
    """
    name = schema.split("(")[0]
    _library.define(schema)  # type: ignore[no-untyped-call]
    _library.impl(name, run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"latchwork::{name}", fake, lib=_library)
    torch.library.register_autograd(
        f"latchwork::{name}", gradient or _no_second_gradient, setup_context=save, lib=_library
    )


def refuse_tangent(*grads: Tensor | None) -> None:
    """To be called in a gradient: an error where its own forward-mode derivative is asked for, instead of silence."""
    if transforms.has_tangent(*grads):
        _no_second_gradient(None)


def refuse_second_derivative(*grads: Tensor | None) -> None:
    """To be called in a backward: an error where its own derivative may be asked for, instead of silence."""
    if torch.is_grad_enabled() or transforms.has_tangent(*grads):
        _no_second_gradient(None)


def _no_second_gradient(ctx: Any, *grads: Any) -> None:
    raise NotImplementedError(
        "the fused kernels have no second derivative: call backward without create_graph=True and without a tangent, "
        'or use `with use_backend("reference")`, which autograd differentiates twice'
    )
