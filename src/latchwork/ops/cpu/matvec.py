"""A matrix times a few vectors by the C++ kernel: weights in float32 or int8, read at the speed of the memory."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel
from latchwork.ops.cpu.abi import Matvec

MOST_VECTORS = 4  # beyond that a matrix product is better
SMALLEST = 1 << 14  # elements of an int8 weight; below that the call costs more than it gives
COLD = 16  # times as many of a float32 weight: below that it stays in a cache, where torch is as fast


def unfit(x: Tensor) -> str | None:
    """Why the kernel cannot take x, or None."""
    return kernel.unfit(x, "x")


def pays(x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> bool:
    """Whether the kernel takes these tensors, and is faster than a matrix product."""
    if torch.compiler.is_compiling():  # first: an open size may not be asked for
        return False
    outputs, inputs = weight.shape
    return (
        0 < x.numel() <= MOST_VECTORS * inputs
        and weight.numel() >= (COLD * SMALLEST if scale is None else SMALLEST)
        and x.dim() > 0
        and x.shape[-1] == inputs
        and x.dtype == torch.float32
        and weight.dtype == (torch.float32 if scale is None else torch.int8)
        and weight.stride(1) == 1
        and kernel.readable(x, weight)
        and (scale is None or (scale.shape == (outputs, 1) and _is_plain(scale)))
        and (bias is None or (bias.shape == (outputs,) and _is_plain(bias)))
        and not torch.is_autocast_enabled("cpu")
    )


def _is_plain(a: Tensor) -> bool:
    return a.dtype == torch.float32 and kernel.readable(a) and a.is_contiguous()


def linear(x: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
    """x (..., inputs) to (..., outputs); the tensors are such that `pays`."""
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
    kernel.call("latchwork_matvec", problem)
    return y
