"""What differentiates or batches a computation from outside: torch.func, and forward-mode derivatives.

Our kernels see numbers alone: a tangent, or a dimension that torch.func keeps apart, would be lost there without a
word. So every door asks here first, and takes plain torch operations where there is either.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # torch 2.5 knows only the latter


def forward_mode() -> bool:
    """Whether forward-mode derivatives are being taken, by torch.func.jvp or by torch.autograd.forward_ad."""
    return forward_ad._current_level >= 0


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether any of these has a forward-mode tangent, or may have one: a compiler does not see it."""
    if forward_ad._current_level < 0:
        return False
    if torch.compiler.is_compiling():
        return True
    given = (each for each in tensors if each is not None)
    return any(forward_ad.unpack_dual(each).tangent is not None for each in given)  # type: ignore[no-untyped-call]


def exporting() -> bool:
    """Whether torch.export makes a graph, which is for all sizes and knows no operation of ours but `minmax_scan`."""
    return bool(_exporting())


def hides_numbers() -> bool:
    """Whether no number of a tensor may be looked at: torch.compile does not have it yet, and vmap has many."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def unfit(*tensors: Tensor | None) -> str | None:
    """Why only plain torch operations may take these tensors, or None."""
    if torch._C._are_functorch_transforms_active():
        return "under a transform of torch.func only the definition runs"
    if forward_ad._current_level >= 0 and has_tangent(*tensors):
        return "for a forward-mode tangent only the definition runs"
    return None
