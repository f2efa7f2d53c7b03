"""Rows of numbers in time by the C++ kernel, for float32 and float64: csrc/temporal.cpp."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel

MANY = 1 << 17  # numbers; below this a second thread costs more than it gives


def unfit(x: Tensor) -> str | None:
    """Why the kernel cannot take x, or None."""
    return kernel.unfit(x, "x")


def takes(x: Tensor) -> bool:
    """Whether the kernel has this dtype."""
    return x.dtype in (torch.float32, torch.float64)


def latch(r: Tensor, s: Tensor, step: int, width: int) -> Tensor:
    """Every state; arguments as in ops/temporal.py."""
    r, s = r.contiguous(), s.contiguous()
    x = torch.empty_like(r)
    _call("latchwork_latch", r, r, s, step, width, x)
    return x


def latch_backward(grad: Tensor, r: Tensor, s: Tensor, x: Tensor, step: int, width: int) -> tuple[Tensor, Tensor]:
    """The gradients of r and s."""
    r, s = r.contiguous(), s.contiguous()
    grad_r, grad_s = torch.empty_like(r), torch.empty_like(s)
    _call("latchwork_latch_back", r, grad.contiguous(), r, s, x, step, width, grad_r, grad_s)
    return grad_r, grad_s


def window(x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    """The best of each window; arguments as in ops/temporal.py."""
    x = x.contiguous()
    y = torch.empty_like(x)
    _call("latchwork_window", x, low, high, int(minimum), x, y)
    return y


def window_backward(grad: Tensor, x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    """The gradient of x."""
    x, grad = x.contiguous(), grad.contiguous()
    grad_x = torch.empty_like(x)
    _call("latchwork_window_back", x, low, high, int(minimum), grad, x, grad_x)
    return grad_x


def _call(name: str, rows: Tensor, *arguments: Any) -> None:
    batch, steps = rows.shape
    values = [
        ctypes.c_void_p(each.data_ptr()) if isinstance(each, Tensor) else ctypes.c_int64(each) for each in arguments
    ]
    head = (ctypes.c_int64(each) for each in (kernel.DTYPES[rows.dtype], batch, steps))
    threads = torch.get_num_threads() if rows.numel() >= MANY else 1
    kernel.check(name, getattr(kernel.library(), name)(*head, *values, ctypes.c_int64(threads)))
