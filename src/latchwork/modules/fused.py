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

_NORMS = {nn.LayerNorm: "layernorm", nn.RMSNorm: "rmsnorm", nn.Identity: "none"}


def fused_drive(layer: MinMaxLayer, u: Tensor, before: Tensor | None, reset: Tensor | None) -> Tensor | None:
    """`layer.drive` of u (B, T, d_model) by the kernel, or None where it does not apply or does not pay.

    It applies to the layer as this library makes it: float32 on the CPU, relu or relu^2, no hook, no exchanged part,
    nothing being traced. Else the parts run one by one, which is the definition.
    """
    if not _pays(u) or not _is_as_made(layer):
        return None
    if layer.ffn.act_fn not in ("relu", "relu^2") or _rate(layer.neuron.dropout):
        return None
    weights = _weights(layer)
    if not _fit_each_other(layer, weights) or drive.unfit(u, before, reset, *weights):
        return None
    norm = layer.norm_conv
    epsilon = getattr(norm, "eps", 0.0)
    options = drive.Options(
        norm=_NORMS[type(norm)],
        epsilon=torch.finfo(torch.float32).eps if epsilon is None else float(epsilon),
        gated_ffn=isinstance(layer.ffn, GatedFeedForward),
        squared=layer.ffn.act_fn == "relu^2",
        dropout=_rate(layer.ffn.dropout),
    )
    return drive.drive(u, before, reset, weights, options)


def fused_respond(
    layer: MinMaxLayer, u: Tensor, z: Tensor, state: Tensor | None, reset: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """u + y and the last state of `layer.neuron.recur` by the kernel, or None where that does not apply or pay."""
    if not _pays(u) or u.shape[1] < 2 or not _is_as_made(layer):
        return None
    neuron = layer.neuron
    if (
        neuron.degree > 1
        or len(neuron.blocks) > 1
        or neuron.levels is not None
        or neuron.backend not in ("auto", "cpu")
    ):
        return None
    weight, bias = neuron.output.weight, neuron.output.bias
    if weight.shape != (neuron.d_model, neuron.d_read):
        return None
    bank = neuron.latches() if neuron.bank > 1 else None
    if drive.unfit(u, z, state, reset, neuron.x0, weight, bias, *(bank or ())):
        return None
    y, x = respond(u, z, neuron.x0, state, reset, weight, bias, neuron.output_gate, neuron.blur, bank)
    return y, x[:, -1]


def _pays(u: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    return u.shape[0] * u.shape[1] >= FEWEST and u.shape[2] <= WIDEST


def _rate(dropout: nn.Dropout) -> float:
    return dropout.p if dropout.training else 0.0


def _is_as_made(layer: MinMaxLayer) -> bool:
    """Whether every part is of the kind this library makes, and calling it runs its forward and nothing more."""
    from latchwork.modules.layer import MinMaxLayer

    conv, ffn, neuron, norm = layer.conv, layer.ffn, layer.neuron, layer.norm_conv
    if (
        type(layer) is not MinMaxLayer
        or type(conv) not in (BasicConv, GatedConv)
        or type(ffn) not in (FeedForward, GatedFeedForward)
        or type(neuron) is not MinMaxNeuron
        or type(norm) not in _NORMS
    ):
        return False
    linears = (ffn.up, ffn.down, neuron.projection, neuron.output)
    norms = (norm, layer.norm_ffn, layer.norm_neuron)
    dropouts = (ffn.dropout, neuron.dropout)
    epsilon, parameters = getattr(norm, "eps", None), 2 if type(norm) is nn.LayerNorm else 1
    return (
        all(type(each) is Linear and each.bias is not None for each in linears)
        and all(type(each) is nn.Dropout for each in dropouts)
        and all(type(each) is type(norm) and getattr(each, "eps", None) == epsilon for each in norms)
        and all(len(list(each.parameters())) == parameters or type(norm) is nn.Identity for each in norms)
        and not any(
            has_hooks(each) or "forward" in vars(each) for each in (conv, ffn, neuron, *norms, *linears, *dropouts)
        )
    )


def _fit_each_other(layer: MinMaxLayer, weights: drive.Weights) -> bool:
    """Whether all shapes are those of a layer; where not, the parts themselves say what is wrong."""
    d, up = layer.neuron.d_model, weights.up.shape[0]
    hidden = up // 2 if isinstance(layer.ffn, GatedFeedForward) else up
    conv = (d, 2 * d) if isinstance(layer.conv, BasicConv) else (d,)
    outputs = sum(layer.neuron.widths)
    return (
        weights.conv.shape == conv
        and (len(conv) == 1 or (weights.conv_bias is not None and weights.conv_bias.shape == (d,)))
        and weights.up.shape[1] == d
        and weights.down.shape == (d, hidden)
        and weights.projection.shape == (outputs, d)
        and layer.neuron.output.weight.shape == (d, layer.neuron.d_read)
        and all(norm is None or norm.shape == (d,) for norm in weights[:6])
    )


def _weights(layer: MinMaxLayer) -> drive.Weights:
    parts: list[Tensor | None] = []
    for norm in (layer.norm_conv, layer.norm_ffn, layer.norm_neuron):
        parts += [getattr(norm, "weight", None), getattr(norm, "bias", None)]
    parts += [layer.conv.weight, layer.conv.bias] if isinstance(layer.conv, BasicConv) else [layer.conv.g, None]
    for linear in (layer.ffn.up, layer.ffn.down, layer.neuron.projection):
        parts += [linear.weight, linear.bias]
    return drive.Weights(*parts)  # type: ignore[arg-type]
