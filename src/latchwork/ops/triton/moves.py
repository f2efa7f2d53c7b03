"""Moves of whole levels on a GPU, in Triton; the kernels are in `moves_kernels.py`, imported at first use.

Sequential in time, parallel over sequences and units.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from latchwork.ops.torch.moves import Gradients, new_gradients
from latchwork.ops.triton import scan
from latchwork.ops.triton.scan import device_of, power_of_two, strided


def unfit(weights: Tensor) -> str | None:
    """Why this backend cannot take weights, or None."""
    return scan.unfit(weights, "weights")


def forward(
    choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None, sends: bool
) -> Tensor:
    """Every state; shapes as in ops/torch/moves.py."""
    from latchwork.ops.triton.moves_kernels import move_kernel

    x = state.new_empty(choice.shape)
    if x.numel() == 0:
        return x
    grid, sizes = _plan(choice, sends)
    with device_of(choice):
        move_kernel[grid](
            x=x, **strided("bt", choice=choice, reset=reset), **strided("b", state=state, s=s, x0=x0), **sizes
        )
    return x


def backward(
    grad: Tensor,
    choice: Tensor,
    x: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
) -> Gradients:
    """The surrogate gradients. The sum over the places of a unit has an order of its own."""
    from latchwork.ops.triton.moves_kernels import move_back_kernel

    gradients = grad_weights, grad_state, grad_s, grad_x0 = new_gradients(Tensor.new_empty, choice, state, s, reset)
    if choice.numel() == 0:
        return gradients
    grid, sizes = _plan(choice, sends)
    with device_of(choice):
        move_back_kernel[grid](
            x=x.contiguous(),
            grad_weights=grad_weights,
            grad_state=grad_state,
            grad_s=grad_s,
            grad_x0=grad_x0,
            **strided("bt", grad=grad, choice=choice, reset=reset),
            **strided("b", state=state, s=s, x0=x0),
            **sizes,
        )
    return gradients


def _plan(choice: Tensor, sends: bool) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid, and the kernels' arguments of size."""
    B, T, units, N = choice.shape
    pad = power_of_two(N)
    block = min(power_of_two(units), max(1, 512 // pad**2))
    tile = block * pad**2
    arguments = {
        "T": T,
        "U": units,
        "N": N,
        "BLOCK": block,
        "PAD": pad,
        "SENDS": sends,
        "STAGES": 4 if tile <= 4096 else 1,  # as in scan.py
        "num_warps": max(1, min(8, tile // 64), min(32, tile // 1024)),
        "enable_fp_fusion": False,
    }
    return (B, math.ceil(units / block)), arguments
