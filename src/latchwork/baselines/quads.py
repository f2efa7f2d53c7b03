"""A linear map of every four channels by themselves: in plain torch, and as an operation of the C++ kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.baselines import kernel
from latchwork.ops import dispatch


def blockwise(u: Tensor, weight: Tensor) -> Tensor:
    """u (B, T, D) in blocks of d channels, each times its weight: (D / d, d, d), outputs before inputs.

    The C++ kernel takes blocks of four.
    """
    if weight.shape[1:] == (4, 4) and u.numel() and kernel.takes(u, weight):
        y: Tensor = torch.ops.latchwork.quads(u, weight)
        return y
    return torch.einsum("bthd,hod->btho", u.reshape(*u.shape[:2], len(weight), -1), weight).reshape(u.shape)


def _sizes(u: Tensor) -> dict[str, int]:
    return dict(zip(("batch", "time", "width"), u.shape, strict=True))


def _run(u: Tensor, weight: Tensor) -> Tensor:
    (u,), y = kernel.contiguous([u]), kernel.empty(*u.shape, like=u)
    kernel.run("quads", kernel.Quads, **_sizes(u), u=u, weight=weight.contiguous(), y=y)
    return y


def _backward(grad_y: Tensor, u: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    grad_y, u = kernel.contiguous([grad_y, u])
    grads = {"grad_y": grad_y, "grad_u": kernel.empty(*u.shape, like=u), "grad_weight": torch.zeros_like(weight)}
    kernel.run("quads", kernel.Quads, **_sizes(u), u=u, weight=weight.contiguous(), **grads)
    return grads["grad_u"], grads["grad_weight"]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, grad_y: Tensor) -> tuple[Tensor, Tensor]:
    dispatch.refuse_tangent(grad_y)
    found: tuple[Tensor, Tensor] = torch.ops.latchwork.quads_backward(grad_y, *ctx.saved_tensors)
    return found


dispatch.register("quads(Tensor u, Tensor weight) -> Tensor", _run, lambda u, _: u.new_empty(u.shape), _save, _gradient)
dispatch.register(
    "quads_backward(Tensor grad_y, Tensor u, Tensor weight) -> (Tensor, Tensor)",
    _backward,
    lambda grad_y, u, weight: (u.new_empty(u.shape), weight.new_empty(weight.shape)),
)
