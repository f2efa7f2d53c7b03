"""Mamba's layer between its two projections: in plain torch, and as one operation of the C++ kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.baselines import kernel
from latchwork.baselines.causal_conv import MOST_TAPS, causal_conv
from latchwork.baselines.linear import linear
from latchwork.baselines.selective_scan import selective_scan
from latchwork.ops import dispatch

KERNEL_SEGMENT = 8  # steps whose states are held at once in the backward pass; the same in csrc/baselines/mamba.cpp
VECTOR = 16  # no vector of the kernel has more numbers


class MixerWeights(NamedTuple):
    """Of a layer of D channels with N states each, dt being made of R numbers."""

    conv: Tensor  # (D, 1, taps)
    conv_bias: Tensor | None  # (D,)
    x_proj: Tensor  # (R + 2 N, D)
    dt_proj: Tensor  # (D, R)
    dt_bias: Tensor  # (D,)
    decay: Tensor  # (N, D)
    skip: Tensor  # (D,)


def mamba_mixer(mapped: Tensor, before: Tensor, weights: MixerWeights, x0: Tensor) -> tuple[Tensor, Tensor]:
    """What `selective_scan` gives for u and the gate, (B, T, D), and the last state, (B, N, D).

    mapped: (B, T, 2 D), w and the gate side by side. u: silu of the causal convolution of w, which goes on from before:
    (B, taps - 1, D). Linear maps of u give dt, by way of R numbers, write and read.
    """
    taps = weights.conv.shape[2]
    if mapped.numel() and 1 < taps <= MOST_TAPS and kernel.takes(mapped, before, *weights, x0):
        y, x, _ = torch.ops.latchwork.mamba_mixer(mapped, before, *weights, x0, torch.is_grad_enabled())
        return y, x
    return plain_mamba_mixer(mapped, before, weights, x0)


def plain_mamba_mixer(mapped: Tensor, before: Tensor, weights: MixerWeights, x0: Tensor) -> tuple[Tensor, Tensor]:
    """The definition."""
    w, gate = mapped.chunk(2, -1)
    u = causal_conv(w, before, weights.conv, weights.conv_bias)
    states = x0.shape[1]
    dt, write, read = torch.split(linear(u, weights.x_proj), [weights.dt_proj.shape[1], states, states], -1)
    dt = linear(dt, weights.dt_proj, weights.dt_bias)
    return selective_scan(dt, u, write, read, weights.decay, weights.skip, gate, x0)


_Tensors = tuple[Tensor, ...]
_NAMES = ("mapped", "before", *MixerWeights._fields, "x0")
_BIAS = _NAMES.index("conv_bias")


def _given(tensors: tuple[Any, ...]) -> dict[str, Any]:
    """The tensors by name, as the kernel reads them, and the sizes."""
    (B, T, _), (_, N, D) = tensors[0].shape, tensors[9].shape
    sizes = {"batch": B, "time": T, "width": D, "states": N, "rank": tensors[5].shape[1], "taps": tensors[2].shape[2]}
    return {**sizes, **kernel.by_name(_NAMES, tensors)}


def _run(*inputs: Any) -> _Tensors:
    """y, the last state, and the states that the gradient needs if they are to be kept."""
    y, x, kept = (kernel.empty(*each.shape, like=inputs[0]) for each in _run_fake(*inputs))
    wanted = {"y": y, "x": x, "kept": kept if inputs[10] else None}
    kernel.run("mamba_mixer", kernel.MambaMixer, **_given(inputs[:10]), **wanted)
    return y, x, kept


def _run_fake(*inputs: Any) -> _Tensors:
    mapped, x0, keep = inputs[0], inputs[9], inputs[10]
    (B, T, _), (_, N, D) = mapped.shape, x0.shape
    segments, width = -(-T // KERNEL_SEGMENT), -(-D // VECTOR) * VECTOR
    kept = mapped.new_empty(B, segments, N * width) if keep else mapped.new_empty(0)
    return mapped.new_empty(B, T, D), x0.new_empty(x0.shape), kept


def _backward(grad_y: Tensor, grad_x: Tensor | None, kept: Tensor, *inputs: Any) -> list[Tensor]:
    """The gradients of all tensors; that of a bias that is not there is empty."""
    found, values = kernel.gradients(_NAMES, _backward_fake(grad_y, grad_x, kept, *inputs), slice(2, 9))
    (values["grad_y"],), values["grad_x"] = kernel.contiguous([grad_y]), None if grad_x is None else grad_x.contiguous()
    kernel.run("mamba_mixer_back", kernel.MambaMixer, **_given(inputs), kept=kept, **values)
    return found


def _backward_fake(grad_y: Tensor, grad_x: Any, kept: Tensor, *inputs: Any) -> list[Tensor]:
    return [grad_y.new_empty(0 if each is None else each.shape) for each in inputs]


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(output[2], *inputs[:-1])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor | None, grad_x: Tensor | None, grad_kept: object) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y, grad_x)
    kept, mapped, *given = ctx.saved_tensors
    grad_y = torch.zeros_like(mapped[..., : mapped.shape[2] // 2]) if grad_y is None else grad_y
    found = torch.ops.latchwork.mamba_mixer_backward(grad_y, grad_x, kept, mapped, *given)
    if given[_BIAS - 1] is None:
        found[_BIAS] = None
    return *found, None


_ARGUMENTS = ", ".join(f"Tensor{'?' if name == 'conv_bias' else ''} {name}" for name in _NAMES)
dispatch.register(
    f"mamba_mixer({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor)", _run, _run_fake, _save, _gradient
)
dispatch.register(
    f"mamba_mixer_backward(Tensor grad_y, Tensor? grad_x, Tensor kept, {_ARGUMENTS}) -> Tensor[]",
    _backward,
    _backward_fake,
)
