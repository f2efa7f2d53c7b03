"""When a layer's `drive` may run as one pass of the C++ kernel, and how it is called then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from latchwork.modules.conv import BasicConv, GatedConv
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.linear import Linear, has_hooks
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.ops import drive
from latchwork.ops.respond import respond

if TYPE_CHECKING:
    from latchwork.modules.layer import MinMaxLayer

WIDEST = 256  # d_model; above it the products of a BLAS are as good
FEWEST = 32  # rows; below it packing the weights costs more than it gives

_KINDS = (BasicConv, GatedConv, FeedForward, GatedFeedForward, MinMaxNeuron, Linear, nn.Dropout, nn.Identity)
_NORMS = {nn.LayerNorm: "layernorm", nn.RMSNorm: "rmsnorm", nn.Identity: "none"}


def fused_drive(layer: MinMaxLayer, u: Tensor, before: Tensor | None, reset: Tensor | None) -> Tensor | None:
    """`layer.drive` of u (B, T, d_model) by the kernel, or None where it does not apply or does not pay.

    It applies to the layer as this library makes it: float32 on the CPU, relu or relu^2, no hook, no exchanged part,
    nothing being traced. Else the parts run one by one, which is the definition.
    """
    if u.shape[0] * u.shape[1] < FEWEST or u.shape[2] > WIDEST or torch.compiler.is_compiling():
        return None
    if layer.ffn.act_fn not in ("relu", "relu^2") or (layer.training and layer.neuron.dropout.p > 0):
        return None
    if torch.is_autocast_enabled("cpu") or not _is_as_made(layer):
        return None
    weights = _weights(layer)
    if drive.unfit(u, before, reset, *weights):
        return None
    norm = layer.norm_conv
    epsilon = getattr(norm, "eps", 0.0)
    options = drive.Options(
        norm=_NORMS[type(norm)],
        epsilon=torch.finfo(torch.float32).eps if epsilon is None else float(epsilon),
        gated_ffn=isinstance(layer.ffn, GatedFeedForward),
        squared=layer.ffn.act_fn == "relu^2",
        dropout=layer.ffn.dropout.p if layer.training else 0.0,
    )
    return drive.drive(u, before, reset, weights, options)


def fused_respond(
    layer: MinMaxLayer, u: Tensor, z: Tensor, state: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """u + y and the last state of `layer.neuron.recur` by the kernel, or None where that does not apply or pay."""
    neuron = layer.neuron
    if u.shape[0] * u.shape[1] < FEWEST or u.shape[2] > WIDEST or torch.compiler.is_compiling() or u.shape[1] < 2:
        return None
    if neuron.degree > 1 or neuron.levels is not None or neuron.backend not in ("auto", "cpu"):
        return None
    if torch.is_autocast_enabled("cpu") or not _is_as_made(layer):
        return None
    weight, bias = neuron.output.weight, neuron.output.bias
    if drive.unfit(u, z, state, reset, neuron.x0, weight, bias):
        return None
    y, x = respond(u, z, neuron.x0, state, reset, weight, bias, neuron.output_gate)
    return y, x[:, -1]


def _is_as_made(layer: MinMaxLayer) -> bool:
    """No part was exchanged for one of another kind, and none has a hook that should run."""
    return all(
        (type(part) in _KINDS or type(part) in _NORMS) and not has_hooks(part)
        for part in layer.modules()
        if part is not layer
    )


def _weights(layer: MinMaxLayer) -> drive.Weights:
    parts: list[Tensor | None] = []
    for norm in (layer.norm_conv, layer.norm_ffn, layer.norm_neuron):
        parts += [getattr(norm, "weight", None), getattr(norm, "bias", None)]
    parts += [layer.conv.weight, layer.conv.bias] if isinstance(layer.conv, BasicConv) else [layer.conv.g, None]
    for linear in (layer.ffn.up, layer.ffn.down, layer.neuron.projection):
        parts += [linear.weight, linear.bias]
    return drive.Weights(*parts)  # type: ignore[arg-type]
