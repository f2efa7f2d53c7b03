"""linear and int8_linear: a matrix times a few vectors. Decoding spends most of its time on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.ops import dispatch
from latchwork.ops.cpu import matvec as kernel
from latchwork.ops.torch import matvec as plain


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear. On the CPU, for a few vectors, it is as fast as the weight can be read from memory."""
    if dispatch.asked_for() == "auto" and (
        torch.compiler.is_compiling() or weight.numel() < kernel.COLD * kernel.SMALLEST
    ):
        return F.linear(x, weight, bias)  # the usual case, at the least cost
    return _linear(x, weight, None, bias)


def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear with the weight int8 (outputs, inputs) times scale (outputs, 1), one step for each row.

    For many vectors, or on other devices, the weight is made float first.
    """
    return _linear(x, weight, scale, bias)


def _linear(x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    name = dispatch.choose("matvec", "auto", x, weight, scale, bias)
    if name == "cpu" and kernel.pays(x, weight, scale, bias):
        if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return kernel.linear(x, weight, scale, bias)  # decoding: torch's own call of an operation takes longer
        y: Tensor = torch.ops.latchwork.matvec(x, weight, scale, bias)
        return y
    return plain.linear(x, weight, scale, bias)


def _fake(x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """In plain torch, so that it has derivatives of its own."""
    x, weight, scale = ctx.saved_tensors
    of_x, of_weight, of_scale, of_bias, *_ = ctx.needs_input_grad
    rows, inputs = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
    whole = weight if scale is None else weight.to(grad.dtype) * scale
    product = rows.t() @ inputs if of_weight or of_scale else None
    return (
        grad @ whole if of_x else None,
        product if of_weight else None,
        (product * weight).sum(1, keepdim=True) if of_scale and product is not None else None,
        rows.sum(0) if of_bias else None,
    )


dispatch.register(
    "matvec(Tensor x, Tensor weight, Tensor? scale, Tensor? bias) -> Tensor", kernel.linear, _fake, _save, _gradient
)
