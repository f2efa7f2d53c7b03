"""Causal attention: in plain torch, and as an operation of the C++ kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """softmax(q k' / sqrt(d)) v of each head, each step seeing itself and those before; all (B, T, heads d)."""
    if q.numel() and kernel.takes(q, k, v):
        y: Tensor = torch.ops.latchwork.attention(q, k, v, heads)[0]
        return y
    return plain_attention(q, k, v, heads)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """The definition."""
    q, k, v = (each.view(*each.shape[:2], heads, -1).transpose(1, 2) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def _sizes(q: Tensor, heads: int) -> dict[str, Any]:
    width = q.shape[2] // heads
    return {"batch": q.shape[0], "time": q.shape[1], "heads": heads, "width": width, "scale": width**-0.5}


def _named(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
    return dict(zip("qkv", kernel.contiguous([q, k, v]), strict=True))


def _run(q: Tensor, k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """The result, and what each step's weights are divided by, as logarithms (B, heads, T)."""
    y, logs = (kernel.empty(*each.shape, like=q) for each in _run_fake(q, k, v, heads))
    kernel.run("attention", kernel.Attention, **_sizes(q, heads), **_named(q, k, v), y=y, logs=logs)
    return y, logs


def _run_fake(q: Tensor, k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[0], heads, q.shape[1])


def _backward(
    grad_y: Tensor, y: Tensor, logs: Tensor, q: Tensor, k: Tensor, v: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    (grad_y,) = kernel.contiguous([grad_y])
    grad_q, grad_k, grad_v = (kernel.empty(*each.shape, like=each) for each in (q, k, v))
    grads = {"grad_y": grad_y, "grad_q": grad_q, "grad_k": grad_k, "grad_v": grad_v}
    kernel.run("attention_back", kernel.Attention, **_sizes(q, heads), **_named(q, k, v), y=y, logs=logs, **grads)
    return grad_q, grad_k, grad_v


def _backward_fake(grad_y: Tensor, y: Tensor, logs: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(each.new_empty(each.shape) for each in rest[:3])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.heads = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor, grad_logs: object) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y)
    return *torch.ops.latchwork.attention_backward(grad_y, *ctx.saved_tensors, ctx.heads), None


_ARGUMENTS = "Tensor q, Tensor k, Tensor v, int heads"
dispatch.register(f"attention({_ARGUMENTS}) -> (Tensor, Tensor)", _run, _run_fake, _save, _gradient)
dispatch.register(
    f"attention_backward(Tensor grad_y, Tensor y, Tensor logs, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
    _backward,
    _backward_fake,
)
