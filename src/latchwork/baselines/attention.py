"""Causal attention: in plain torch, and as an operation of the C++ kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch

FEWEST = 8  # steps; for fewer, all keys are packed for too little


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, window: int | None = None) -> Tensor:
    """softmax(q k' / sqrt(d)) v of each head, like q (B, T, heads d). k, v: (B, T or more, heads d).

    The last T keys are those of the steps themselves. A step sees its own key and those before it, or with a window
    its own and the window - 1 before it.
    """
    if q.numel() and q.shape[1] >= FEWEST and kernel.takes(q, k, v):
        y: Tensor = torch.ops.latchwork.attention(q, k, v, heads, k.shape[1] if window is None else window)[0]
        return y
    return plain_attention(q, k, v, heads, window)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, heads: int, window: int | None = None) -> Tensor:
    """The definition."""
    T, N = q.shape[1], k.shape[1]
    q, k, v = (each.view(*each.shape[:2], heads, -1).transpose(1, 2) for each in (q, k, v))
    mask = None
    if N > T or (window is not None and window < T):
        ago = torch.arange(N - T, N, device=q.device)[:, None] - torch.arange(N, device=q.device)
        mask = (ago >= 0) & (ago < (N if window is None else window))
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None).transpose(1, 2).flatten(2)


def _sizes(q: Tensor, k: Tensor, heads: int, window: int) -> dict[str, Any]:
    B, T, width = q.shape
    width //= heads
    sizes = {"batch": B, "time": T, "keys": k.shape[1], "heads": heads, "width": width}
    return {**sizes, "window": window, "scale": width**-0.5}


def _named(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
    return dict(zip("qkv", kernel.contiguous([q, k, v]), strict=True))


def _run(q: Tensor, k: Tensor, v: Tensor, heads: int, window: int) -> tuple[Tensor, Tensor]:
    """The result, and what each step's weights are divided by, as logarithms (B, heads, T)."""
    y, logs = (kernel.empty(*each.shape, like=q) for each in _run_fake(q, k, v, heads, window))
    kernel.run("attention", kernel.Attention, **_sizes(q, k, heads, window), **_named(q, k, v), y=y, logs=logs)
    return y, logs


def _run_fake(q: Tensor, k: Tensor, v: Tensor, heads: int, window: int) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[0], heads, q.shape[1])


def _backward(
    grad_y: Tensor, y: Tensor, logs: Tensor, q: Tensor, k: Tensor, v: Tensor, heads: int, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    (grad_y,) = kernel.contiguous([grad_y])
    grad_q, grad_k, grad_v = (kernel.empty(*each.shape, like=each) for each in (q, k, v))
    grads = {"grad_y": grad_y, "grad_q": grad_q, "grad_k": grad_k, "grad_v": grad_v}
    kernel.run(
        "attention_back", kernel.Attention, **_sizes(q, k, heads, window), **_named(q, k, v), y=y, logs=logs, **grads
    )
    return grad_q, grad_k, grad_v


def _backward_fake(grad_y: Tensor, y: Tensor, logs: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(each.new_empty(each.shape) for each in rest[:3])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.heads, ctx.window = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor, grad_logs: object) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y)
    found = torch.ops.latchwork.attention_backward(grad_y, *ctx.saved_tensors, ctx.heads, ctx.window)
    return *found, None, None


_ARGUMENTS = "Tensor q, Tensor k, Tensor v, int heads, int window"
dispatch.register(f"attention({_ARGUMENTS}) -> (Tensor, Tensor)", _run, _run_fake, _save, _gradient)
dispatch.register(
    f"attention_backward(Tensor grad_y, Tensor y, Tensor logs, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
    _backward,
    _backward_fake,
)
