"""Norms by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layernorm": nn.LayerNorm,
    "rmsnorm": nn.RMSNorm,
    "none": nn.Identity,
}


def norm(kind: str, d_model: int) -> nn.Module:
    """ "layernorm", "rmsnorm" or "none"."""
    if kind not in NORMS:
        raise ValueError(f"norm_type must be one of {', '.join(NORMS)}; got {kind!r}")
    return NORMS[kind](d_model)
