"""What the doors of recurrences share: checks of their arguments, and the start of every sequence."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# Asked once: older releases of torch.compile cannot trace the question.
AUTOCAST = tuple(device for device in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(device))


def expand(start: Tensor, shape: torch.Size) -> Tensor:
    """One row for each sequence, also where `start` is a single row for all of them.

    A sum of floats depends on its order, and torch chooses the order by the strides of what it sums. Flattened, the
    gradients of the rows have one layout, so that their sum has one order, whatever the strides of r and s are.
    """
    return start.expand(shape).flatten().view(shape)


def autocasts(r: Tensor) -> bool:
    """Whether torch casts by itself on the device of r."""
    device = r.device.type
    return device in AUTOCAST and torch.is_autocast_enabled(device)


def promote(r: Tensor, s: Tensor, x0: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """All in the wider of the types of r and s."""
    wider = torch.promote_types(r.dtype, s.dtype)
    return r.to(wider), s.to(wider), x0.to(wider), None if state is None else state.to(wider)


def check_dense(**values: Tensor | None) -> None:
    """Raise an error that names the first of these that is not an ordinary tensor."""
    for name, value in values.items():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(value).__name__}")
        if value is not None and (value.layout is not torch.strided or value.is_nested):
            raise TypeError(f"{name} must be dense; got {'nested' if value.is_nested else value.layout}")


def check_arguments(r: Tensor, s: Tensor, x0: Tensor, reset: Tensor | None, state: Tensor | None) -> None:
    """Raise an error that names the argument that is wrong, what it must be and what it was."""
    if r.dim() == 3:
        if s.shape != r.shape:
            raise ValueError(f"s must be (B, T, D) = {tuple(r.shape)}, as r; got {tuple(s.shape)}")
    elif r.dim() == 5:
        if r.shape[-1] != r.shape[-2] or r.shape[-1] == 0:
            raise ValueError(f"r must be (B, T, U, N, N) with N >= 1; got {tuple(r.shape)}")
        if s.shape != r.shape[:-1]:
            raise ValueError(f"s must be (B, T, U, N) = {tuple(r.shape[:-1])}, as r; got {tuple(s.shape)}")
    else:
        raise ValueError(
            f"r must be (B, T, D) for degree one or (B, T, U, N, N) for degree n; got {r.dim()} dimensions: "
            f"{tuple(r.shape)}"
        )
    starts = {"x0": x0} if state is None else {"x0": x0, "state": state}
    check_alike(r, {"s": s, **starts})
    whole, row = s.shape[:1] + s.shape[2:], s.shape[2:]
    for name, value in starts.items():
        if value.shape != (row if value.dim() == len(row) else whole):
            raise ValueError(f"{name} must be {tuple(whole)} or {tuple(row)}; got {tuple(value.shape)}")
    if reset is not None:
        if reset.dtype != torch.bool:
            raise TypeError(f"reset must be bool; got {reset.dtype}")
        if reset.shape != s.shape[:2]:
            raise ValueError(f"reset must be (B, T) = {tuple(s.shape[:2])}; got {tuple(reset.shape)}")
        if reset.device != r.device:
            raise ValueError(f"reset must be on the device of r, {r.device}; got {reset.device}")


def check_alike(r: Tensor, others: dict[str, Tensor]) -> None:
    """Raise an error where r has a dtype that is not for us, or another tensor has another dtype or device."""
    if r.dtype not in DTYPES:
        raise TypeError(f"r must be float32, float64, bfloat16 or float16; got {r.dtype}")
    for name, value in others.items():
        if value.dtype != r.dtype:
            raise TypeError(f"{name} must have the dtype of r, {r.dtype}; got {value.dtype}")
        if value.device != r.device:
            raise ValueError(f"{name} must be on the device of r, {r.device}; got {value.device}")
