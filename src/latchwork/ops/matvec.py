"""A matrix times a few vectors, float32 or int8 weights: what decoding spends its time on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.ops import cpu, dispatch, transforms
from latchwork.ops.abi import Matvec

MOST_VECTORS = 4  # beyond that a matrix product is better
SMALLEST = 1 << 14  # elements of the weight; below that the call costs more than it gives


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear, read at the speed of the memory where x is a vector or a few and no gradient is wanted."""
    if weight.dtype == torch.float32 and fits(x, weight, bias):
        return _call(x, weight, None, bias)
    return F.linear(x, weight, bias)


def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear with the weight int8 (outputs, inputs) times scale (outputs, 1), its rows' steps.

    For many vectors, or on other devices, the weight is made float first.
    """
    if weight.dtype == torch.int8 and scale.shape == (len(weight), 1) and _plain(scale) and fits(x, weight, bias):
        return _call(x, weight, scale, bias)
    return F.linear(x, weight.to(x.dtype) * scale.to(x.dtype), bias)


def fits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernel takes these tensors, and it pays."""
    if torch.compiler.is_compiling():  # first: an open size may not be asked for
        return False
    if bias is not None and not (_plain(bias) and bias.shape == weight.shape[:1]):
        return False
    return (
        x.numel() <= MOST_VECTORS * weight.shape[1]
        and x.dim() > 0
        and x.shape[-1] == weight.shape[1]
        and weight.numel() >= SMALLEST
        and x.numel() > 0
        and x.dtype == torch.float32
        and weight.dtype in (torch.float32, torch.int8)
        and weight.stride(1) == 1
        and cpu.readable(x)
        and cpu.readable(weight)
        and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
        and not torch.is_autocast_enabled("cpu")
        and transforms.unfit(x, weight) is None
        and dispatch.asked_for() in ("auto", "cpu")
        and cpu.MISSING is None
    )


def _plain(a: Tensor) -> bool:
    """Whether the kernel can read a as so many floats, and no gradient is wanted for it."""
    return (
        a.dtype == torch.float32
        and cpu.readable(a)
        and a.is_contiguous()
        and not (torch.is_grad_enabled() and a.requires_grad)
        and not transforms.has_tangent(a)
    )


def _call(x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    outputs, inputs = weight.shape
    x = x.contiguous()
    y = x.new_empty(*x.shape[:-1], outputs)
    problem = Matvec(
        *(x.numel() // inputs, outputs, inputs, weight.stride(0), scale is not None, torch.get_num_threads()),
        weight.data_ptr(),
        None if scale is None else scale.data_ptr(),
        None if bias is None else bias.data_ptr(),
        *(x.data_ptr(), y.data_ptr()),
    )
    cpu.call("latchwork_matvec", problem)
    return y
