"""Signals as they come, to tensors by name: checked at the door, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

Signals = Mapping[str, Any] | Tensor


def read(signals: Signals, needed: Sequence[str], names: Sequence[str] | None) -> dict[str, Tensor]:
    """The signals by name, all of one shape (B, T) or (T,), one floating dtype and one device."""
    if isinstance(signals, Mapping):
        if names is not None:
            raise ValueError("names are for one tensor of signals; a mapping of signals has its own")
        found = {name: _tensor(name, value) for name, value in signals.items()}
    else:
        tensor = torch.as_tensor(signals)
        if names is None:
            raise ValueError("one tensor of signals (B, T, D) needs `names`, D of them")
        if tensor.dim() not in (2, 3) or tensor.shape[-1] != len(names):
            raise ValueError(f"signals must be (B, T, D) or (T, D) with D = {len(names)}; got {tuple(tensor.shape)}")
        found = dict(zip(names, tensor.unbind(-1), strict=True))
    if missing := [name for name in needed if name not in found]:
        raise ValueError(f"the formula speaks of {', '.join(missing)}; the signals are {', '.join(found) or 'none'}")
    if not found:
        raise ValueError("signals must hold at least one signal, which says how many steps there are")
    first = next(iter(found))
    for name, value in found.items():
        if value.dim() not in (1, 2):
            raise ValueError(f"the signal {name} must be (B, T) or (T,); got {tuple(value.shape)}")
        if value.shape != found[first].shape:
            raise ValueError(
                f"all signals must have one shape; {first} has {tuple(found[first].shape)}, "
                f"{name} has {tuple(value.shape)}"
            )
        if value.is_complex():
            raise TypeError(f"the signal {name} must be real; got {value.dtype}")
        if value.device != found[first].device:
            raise ValueError(f"all signals must be on one device; got {found[first].device} and {value.device}")
    dtype = wide([value.dtype for value in found.values()])
    return {name: number(value, dtype) for name, value in found.items()}


def _tensor(name: str, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the signal {name} must be numbers, (B, T) or (T,): {error}") from None


def wide(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """The floating dtype that holds all; the default one if none is floating."""
    floating = [dtype for dtype in dtypes if dtype.is_floating_point]
    return reduce(torch.promote_types, floating) if floating else torch.get_default_dtype()


def number(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Booleans as +1 and -1, numbers as they are."""
    return torch.where(value, 1.0, -1.0).to(dtype) if value.dtype == torch.bool else value.to(dtype)
