"""A linear map of the last dimension: torch's, and as an operation of the C++ kernel.

torch's matrix products reach half the speed of a processor that its library was not made for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch


def linear(u: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """u (..., D) times weight (outputs, D), plus bias (outputs,).

    With weight (H, outputs, d) each of the H blocks of u has its own, and D = H d; the result is (..., H outputs).
    """
    if u.numel() and kernel.takes(u, weight, bias):
        y: Tensor = torch.ops.latchwork.linear(u, weight, bias)
        return y
    if weight.dim() == 2:
        return F.linear(u, weight, bias)
    y = torch.einsum("...hd,hod->...ho", u.reshape(*u.shape[:-1], len(weight), -1), weight).flatten(-2)
    return y if bias is None else y + bias


def _sizes(u: Tensor, weight: Tensor) -> dict[str, int]:
    *blocks, outputs, inputs = weight.shape
    return {
        "rows": u.numel() // u.shape[-1],
        "blocks": blocks[0] if blocks else 1,
        "outputs": outputs,
        "inputs": inputs,
    }


def _rows(u: Tensor) -> Tensor:
    """As (rows, width), copied if the kernel could not read it."""
    (flat,) = kernel.contiguous([u.reshape(-1, u.shape[-1])])
    return flat if flat.stride(0) >= flat.shape[1] else flat.contiguous()  # type: ignore[no-any-return]


def _out(u: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return u.new_empty(*u.shape[:-1], weight.shape[:-1].numel())


def _run(u: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = kernel.empty(*_out(u, weight).shape, like=u)
    kernel.run("linear", kernel.LinearMap, **_sizes(u, weight), x=_rows(u), weight=weight.contiguous(), bias=bias, y=y)
    return y


def _backward(grad_y: Tensor, u: Tensor, weight: Tensor, of_u: bool, of_bias: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients; one that is not asked for is empty."""
    grad_u, grad_weight, grad_bias = found = _backward_fake(grad_y, u, weight, of_u, of_bias)
    kernel.run(
        "linear",
        kernel.LinearMap,
        **_sizes(u, weight),
        x=_rows(u),
        weight=weight.contiguous(),
        grad_y=_rows(grad_y),
        grad_x=grad_u if of_u else None,
        grad_weight=grad_weight,
        grad_bias=grad_bias if of_bias else None,
    )
    return found


def _backward_fake(
    grad_y: Tensor, u: Tensor, weight: Tensor, of_u: bool, of_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        u.new_empty(u.shape if of_u else 0),
        u.new_empty(weight.shape),
        u.new_empty(weight.shape[:-1].numel() if of_bias else 0),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.of_bias = inputs[2] is not None


def _gradient(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    dispatch.refuse_tangent(grad_y)
    of_u = ctx.needs_input_grad[0]
    found = torch.ops.latchwork.linear_backward(grad_y, *ctx.saved_tensors, of_u, ctx.of_bias)
    return found[0] if of_u else None, found[1], found[2] if ctx.of_bias else None


dispatch.register("linear(Tensor u, Tensor weight, Tensor? bias) -> Tensor", _run, _out, _save, _gradient)
dispatch.register(
    "linear_backward(Tensor grad_y, Tensor u, Tensor weight, bool of_u, bool of_bias) -> (Tensor, Tensor, Tensor)",
    _backward,
    _backward_fake,
)
