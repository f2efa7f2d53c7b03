"""The one table of backends, what chooses among them, and what makes an operation of ours one of torch.

A backend is a folder here (torch, cpu, triton), and an operation a file in it, named as the door in this folder that
checks the arguments and asks `choose`. Each such file says in `unfit(tensor)` why it cannot run, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from latchwork.ops import transforms
from latchwork.ops.cpu import choice as cpu_choice
from latchwork.ops.cpu import cross_entropy as cpu_cross_entropy
from latchwork.ops.cpu import kernel
from latchwork.ops.cpu import layer as cpu_layer
from latchwork.ops.cpu import matvec as cpu_matvec
from latchwork.ops.cpu import moves as cpu_moves
from latchwork.ops.cpu import scan as cpu_scan
from latchwork.ops.cpu import temporal as cpu_temporal
from latchwork.ops.torch import choice as torch_choice
from latchwork.ops.torch import cross_entropy as torch_cross_entropy
from latchwork.ops.torch import matvec as torch_matvec
from latchwork.ops.torch import moves as torch_moves
from latchwork.ops.torch import scan as torch_scan
from latchwork.ops.torch import temporal as torch_temporal
from latchwork.ops.triton import moves as triton_moves
from latchwork.ops.triton import scan as triton_scan

NAMES = ("auto", "reference", "torch", "cpu", "triton")
BACKENDS: dict[str, dict[str, ModuleType]] = {  # of each operation, in order of preference; "torch" takes anything
    "scan": {"triton": triton_scan, "cpu": cpu_scan, "torch": torch_scan},
    "moves": {"triton": triton_moves, "cpu": cpu_moves, "torch": torch_moves},
    "choice": {"cpu": cpu_choice, "torch": torch_choice},
    "layer": {"cpu": cpu_layer},  # without it, the parts of the layer are called
    "cross_entropy": {"cpu": cpu_cross_entropy, "torch": torch_cross_entropy},
    "matvec": {"cpu": cpu_matvec, "torch": torch_matvec},
    "temporal": {"cpu": cpu_temporal, "torch": torch_temporal},
}
_UNFIT: dict[str, Callable[[Tensor], str | None]] = {"triton": triton_scan.unfit, "cpu": kernel.unfit}
_library = torch.library.Library("latchwork", "FRAGMENT")  # type: ignore[no-untyped-call]
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).raw_repr()
_asked = "auto"  # what `use_backend` says


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run everything in this block with one backend: scans, layers, losses, whole models, training and evaluation.

    "reference": the definitions, loops in torch. "torch": torch operations, on any device. "cpu": the C++ kernel.
    "triton": the kernels for GPUs. "auto": the best that takes the tensors. A backend that is named and cannot run on
    these tensors is an error, never replaced. An operation for which it has no kernel runs as torch operations.
    A call's own `backend` argument comes first. The choice holds for the whole process, not for one thread.

    >>> from latchwork import minmax_scan
    >>> r, s = torch.tensor([[[9.0], [9.0]]]), torch.tensor([[[5.0], [0.0]]])
    >>> with use_backend("reference"):
    ...     minmax_scan(r, s, torch.zeros(1)).flatten()
    tensor([5., 5.])
    """
    global _asked
    _check_name(name)
    before, _asked = _asked, name
    try:
        yield
    finally:
        _asked = before


def asked_for(name: str = "auto") -> str:
    """The backend that a call asks for: its own argument, or where that is "auto" what `use_backend` says."""
    return _asked if name == "auto" else name


def choose(operation: str, name: str, *tensors: Tensor | None) -> str:
    """The name of the backend that runs an operation on these tensors; the first of them is not None.

    name: the call's own argument. For "auto" it is the first backend that can run, or "reference" under the transforms
    of torch.func and for forward-mode derivatives. A named backend that cannot run is an error.
    """
    name, plain = asked_for(name), transforms.unfit(*tensors)
    if name == "reference" or (name == "auto" and plain):
        return "reference"
    table, first = BACKENDS[operation], tensors[0]
    assert first is not None
    if name == "auto":
        for each, backend in table.items():
            if backend.unfit(first) is None:
                return each
        return "reference"
    _check_name(name)
    unfit = table[name].unfit if name in table else _UNFIT.get(name)
    if reason := plain or (unfit and unfit(first)):
        raise ValueError(f"backend {name!r} cannot run: {reason}")
    return name if name in table else "torch"


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"backend {name!r} is unknown; there are {', '.join(NAMES)}")


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
    operation = getattr(torch.ops.latchwork, name).default
    derived = _differentiable(operation, run, save, gradient or _no_second_gradient)
    _library.impl(name, derived, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]


def _differentiable(
    operation: Any, implementation: Callable[..., Any], save: Callable[..., None] | None, gradient: Callable[..., Any]
) -> Callable[..., Any]:
    """What `torch.library.register_autograd` makes, without its search for default arguments.

    Its time grows with the square of their number: for a layer it is a third of a millisecond a call. Where nothing but
    the numbers of the CPU is left to dispatch to, `implementation` is called at once.
    """

    def below(keys: Any, *arguments: Any) -> Any:
        keys = keys & torch._C._after_autograd_keyset
        with torch._C._AutoDispatchBelowAutograd():
            return implementation(*arguments) if keys.raw_repr() == _CPU else operation.redispatch(keys, *arguments)

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments_and_keys: Any) -> Any:
            *arguments, keys = arguments_and_keys
            result = below(keys, *arguments)
            if save is not None:
                save(ctx, tuple(arguments), result)
            return tuple(result) if isinstance(result, list) else result  # what is in a list would have no gradient

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            found = gradient(ctx, *grads)
            return *(found if isinstance(found, tuple) else (found,)), None

    # Function.apply looks at each argument for wrappers of torch.func, which none has here: see ops/transforms.py.
    apply: Callable[..., Any] = super(torch.autograd.Function, Differentiable).apply

    def run(keys: Any, *arguments: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            return apply(*arguments, keys)
        return below(keys, *arguments)

    return run


def refuse_tangent(*grads: Tensor | None) -> None:
    """For use in a gradient: raise an error where its own forward-mode derivative is asked for."""
    if transforms.has_tangent(*grads):
        _no_second_gradient(None)


def _no_second_gradient(ctx: Any, *grads: Any) -> None:
    raise NotImplementedError(
        "the kernels have no second derivative: call backward without create_graph=True and without a forward-mode "
        'tangent, or use `with use_backend("reference")`, which autograd differentiates twice'
    )
