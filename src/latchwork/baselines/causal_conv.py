"""A depthwise convolution over time that goes on from the inputs before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch

MOST_TAPS = 8  # that the C++ kernel takes


def causal_conv(conv: nn.Conv1d, u: Tensor, before: Tensor, *, silu: bool = False) -> tuple[Tensor, Tensor]:
    """y_t = bias + sum over k of weight_k * u_{t - K + 1 + k}, or silu of it, and the last K - 1 inputs.

    u: (B, T, D). before: (B, K - 1, D), the inputs before u. conv: a module of kernel K whose weight (D, 1, K) and
    bias are used. Time stays where it is, the second dimension, as the recurrences like it.
    """
    past = conv.kernel_size[0] - 1
    if 0 < past < MOST_TAPS and u.numel() and kernel.takes(u, before, conv.weight, conv.bias):
        y = torch.ops.latchwork.causal_conv(u, before, conv.weight, conv.bias, silu)
    else:
        y = plain_causal_conv(u, before, conv.weight, conv.bias, silu)
    return y, last_inputs(u, before)


def last_inputs(u: Tensor, before: Tensor) -> Tensor:
    """What the convolution of the next inputs has to know: as many of the last of before and u as before has."""
    past = before.shape[1]
    return u[:, -past:] if u.shape[1] >= past else torch.cat([before, u], 1)[:, -past:]


def plain_causal_conv(u: Tensor, before: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    """The definition, a sum of K products."""
    T = u.shape[1]
    padded = torch.cat([before, u], 1)
    y = padded[:, :T] * weight[:, 0, 0]
    for k in range(1, weight.shape[2]):
        y = torch.addcmul(y, padded[:, k : k + T], weight[:, 0, k])
    if bias is not None:
        y = y + bias
    return F.silu(y) if silu else y


def _sizes(u: Tensor, weight: Tensor, silu: bool) -> dict[str, int]:
    B, T, D = u.shape
    return {"batch": B, "time": T, "width": D, "taps": weight.shape[2], "silu": int(silu)}


def _run(u: Tensor, before: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    u, bias = kernel.contiguous([u, bias])
    before, weight = before.contiguous(), weight.contiguous()
    y = kernel.empty(*u.shape, like=u)
    sizes = _sizes(u, weight, silu)
    kernel.run("causal_conv", kernel.CausalConv, **sizes, u=u, before=before, weight=weight, bias=bias, y=y)
    return y


def _backward(
    grad_y: Tensor, u: Tensor, before: Tensor, weight: Tensor, bias: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_y, u, bias = kernel.contiguous([grad_y, u, bias])
    before, weight = before.contiguous(), weight.contiguous()
    grad_u, grad_before = kernel.empty(*u.shape, like=u), torch.empty_like(before)
    grad_weight, grad_bias = torch.zeros_like(weight), weight.new_zeros(weight.shape[0])
    kernel.run(
        "causal_conv_back",
        kernel.CausalConv,
        **_sizes(u, weight, silu),
        u=u,
        before=before,
        weight=weight,
        bias=bias,
        grad_y=grad_y,
        grad_u=grad_u,
        grad_before=grad_before,
        grad_weight=grad_weight,
        grad_bias=grad_bias,
    )
    return grad_u, grad_before, grad_weight, grad_bias


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.silu = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, grad_y: Tensor) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y)
    *grads, grad_bias = torch.ops.latchwork.causal_conv_backward(grad_y, *ctx.saved_tensors, ctx.silu)
    return *grads, None if ctx.saved_tensors[3] is None else grad_bias, None


_ARGUMENTS = "Tensor u, Tensor before, Tensor weight, Tensor? bias, bool silu"
dispatch.register(f"causal_conv({_ARGUMENTS}) -> Tensor", _run, lambda u, *_: u.new_empty(u.shape), _save, _gradient)
dispatch.register(
    f"causal_conv_backward(Tensor grad_y, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    lambda grad_y, u, before, weight, *_: (
        u.new_empty(u.shape),
        before.new_empty(before.shape),
        weight.new_empty(weight.shape),
        weight.new_empty(weight.shape[0]),
    ),
)
