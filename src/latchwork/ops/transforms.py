"""Transforms of a computation from outside: torch.func, forward-mode derivatives, compiling and exporting.

Our kernels see only numbers. They would silently lose a tangent, or a batch dimension of torch.func.vmap. So every
operation asks here first, and uses plain torch operations where there is one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def forward_mode() -> bool:
    """Whether forward-mode derivatives are being taken, by torch.func.jvp or by torch.autograd.forward_ad."""
    return forward_ad._current_level >= 0


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether any of these tensors has a forward-mode tangent. While compiling, whether one may have it."""
    if forward_ad._current_level < 0:
        return False
    if torch.compiler.is_compiling():
        return True
    given = (each for each in tensors if each is not None)
    return any(forward_ad.unpack_dual(each).tangent is not None for each in given)  # type: ignore[no-untyped-call]


def exporting() -> bool:
    """Whether torch.export is making a graph. It is for all sizes, and `minmax_scan` is its only operation of ours."""
    return torch.compiler.is_exporting()


def hides_numbers() -> bool:
    """Whether a tensor's numbers cannot be read now: torch.compile does not have them yet, and vmap has many."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def unfit(*tensors: Tensor | None) -> str | None:
    """Why only plain torch operations may take these tensors, or None."""
    if torch._C._are_functorch_transforms_active():
        return "under a transform of torch.func only the definition runs"
    if forward_ad._current_level >= 0 and has_tangent(*tensors):
        return "for a forward-mode tangent only the definition runs"
    return None
