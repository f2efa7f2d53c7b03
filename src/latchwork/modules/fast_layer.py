"""The one fast path of a layer: when it may be taken, and how.

`MinMaxLayer.forward` is the definition. `plan` checks once that the parts are unchanged and that the C++ kernel takes
these tensors. If so, the layer is one operation (ops/layer.py), or a part of it where the neuron has units of another
kind or the drives are known. The result equals that of the parts to rounding, and the states bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from latchwork.modules.cells import ScalarCell
from latchwork.modules.conv import BasicConv, GatedConv, last_input
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.linear import Linear, has_hooks
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.sequences import at_step
from latchwork.modules.state import State
from latchwork.ops import distributed
from latchwork.ops import layer as ops

if TYPE_CHECKING:
    from latchwork.modules.layer import MinMaxLayer

WIDEST = 768  # d_model; the widest that was measured
FEWEST = 32  # rows; below it packing the weights costs more than it gives

NORMS = {nn.LayerNorm: "layernorm", nn.RMSNorm: "rmsnorm", nn.Identity: "none"}


def plan(
    layer: MinMaxLayer,
    u: Tensor,
    state: State | None,
    reset: Tensor | None,
    drives: Tensor | None,
    last: Tensor | None = None,
) -> Callable[[], tuple[Tensor, State]] | None:
    """A function that computes `layer.forward` of these arguments fast, or None if the parts must be called.

    With drives, only the steps after them are computed, and the caller has checked that the parts are as made.
    """
    worth_it = _is_worth_it(u)
    if distributed.is_split() or (drives is None and not worth_it):
        return None
    before, x = (None, None) if state is None else state
    fits = worth_it and (drives is not None or is_as_made(layer))
    weights = _weights(layer) if fits else ops.Weights()
    fits = fits and _fits(layer, weights, u, before, x, reset)
    if drives is None and not fits:
        return None

    def run() -> tuple[Tensor, State]:
        neuron = layer.neuron
        plain = fits and _is_plain(neuron)
        if drives is None and plain:
            y, after, conv = ops.layer(u, before, x, reset, last, neuron.x0, weights, _options(layer))
            return y, State(conv, after)
        if drives is None:
            z, conv = ops.layer_drive(u, before, reset, last, weights, _options(layer))
        else:
            ending = u[:, -1:] if last is None else at_step(u, last).unsqueeze(1)
            z, conv = drives, last_input(layer.norm_conv(ending), before)
        if plain:
            weight, bias, gated = neuron.output.weight, neuron.output.bias, neuron.output_gate
            y, after = ops.layer_respond(u, z, x, reset, last, neuron.x0, weight, bias, gated)
            return y, State(conv, after)
        y, after = neuron.respond(z, x, reset, last)
        return u + y, State(conv, after)

    return run


def drive(layer: MinMaxLayer, u: Tensor, before: Tensor | None) -> Tensor:
    """`layer.drive`, by the kernel where it takes these tensors. The parts must be as made."""
    weights = _weights(layer)
    if _is_worth_it(u) and _fits(layer, weights, u, before):
        return ops.layer_drive(u, before, None, None, weights, _options(layer))[0]
    return layer.drive(u, before)


def is_as_made(layer: MinMaxLayer) -> bool:
    """Whether every part is of a class of this library, and a call of it runs its forward and nothing else."""
    conv, ffn, neuron, norm = layer.conv, layer.ffn, layer.neuron, layer.norm_conv
    if (
        type(conv) not in (BasicConv, GatedConv)
        or type(ffn) not in (FeedForward, GatedFeedForward)
        or type(neuron) is not MinMaxNeuron
        or type(norm) not in NORMS
        or getattr(conv, "bias", conv) is None
    ):
        return False
    linears: list[Any] = [ffn.up, ffn.down, neuron.projection, neuron.output]
    dropouts: list[Any] = [ffn.dropout, neuron.dropout]
    norms: list[Any] = [norm, layer.norm_ffn, layer.norm_neuron]
    each: Any
    for each in linears:
        if type(each) is not Linear or each.bias is None:
            return False
    for each in dropouts:
        if type(each) is not nn.Dropout:
            return False
    for each in norms:
        if type(each) is not type(norm) or getattr(each, "eps", None) != getattr(norm, "eps", None):
            return False
        if type(norm) is not nn.Identity and (each.weight is None or getattr(each, "bias", norm) is None):
            return False
    return not has_hooks(conv, ffn, neuron, *norms, *linears, *dropouts, *neuron.cells)


def _is_plain(neuron: MinMaxNeuron) -> bool:
    """Whether the second operation can compute this neuron: it has scalars only, not rounded to levels."""
    cell: Any = neuron.cells[0]
    return len(neuron.cells) == 1 and type(cell) is ScalarCell and cell.levels is None


def _is_worth_it(u: Tensor) -> bool:
    """Whether the kernel is faster for inputs of these sizes. In a compiled graph the number of rows is open."""
    return u.shape[2] <= WIDEST and (torch.compiler.is_compiling() or u.shape[0] * u.shape[1] >= FEWEST)


def _fits(layer: MinMaxLayer, weights: ops.Weights, u: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernel can compute this layer, which has these weights, with these tensors."""
    ffn, neuron = layer.ffn, layer.neuron
    if ffn.act_fn not in ops.ACTIVATIONS or (neuron.dropout.training and neuron.dropout.p):
        return False
    d, x0, gated_conv = neuron.d_model, neuron.x0, isinstance(layer.conv, GatedConv)
    conv, up, down, projection, output = weights[6::2]
    if conv is None or up is None or down is None or projection is None or output is None:
        return False
    hidden = up.shape[0] // 2 if isinstance(ffn, GatedFeedForward) else up.shape[0]
    shapes_fit = (  # where not, the parts themselves say what is wrong
        conv.shape == ((d,) if gated_conv else (d, 2 * d))
        and (weights.conv_bias is None) == gated_conv
        and up.shape[1] == d
        and down.shape == (d, hidden)
        and projection.shape == (sum(neuron.widths), d)
        and output.shape == (d, neuron.d_state)
        and x0.shape == (neuron.d_state,)
    )
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        if (bias is not None and (weight is None or bias.shape != weight.shape[:1])) or (
            weight is not None and weight.shape[0] == 0
        ):
            return False
    for weight in (weights.norm_conv, weights.norm_ffn, weights.norm_neuron):
        if weight is not None and weight.shape != (d,):
            return False
    return shapes_fit and ops.unfit(u, *others, x0, *weights) is None


def epsilon_of(norm: nn.Module) -> float:
    """What a norm adds to the variance. None is torch's own choice, which depends on the dtype."""
    epsilon: float | None = getattr(norm, "eps", 0.0)
    if epsilon is not None:
        return float(epsilon)
    weight = norm._parameters.get("weight")
    return torch.finfo(torch.float32 if weight is None else weight.dtype).eps


def _options(layer: MinMaxLayer) -> ops.Options:
    norm, ffn = layer.norm_conv, layer.ffn
    return ops.Options(
        norm=NORMS[type(norm)],
        epsilon=epsilon_of(norm),
        activation=ffn.act_fn,
        gated_ffn=isinstance(ffn, GatedFeedForward),
        dropout=ffn.dropout.p if ffn.dropout.training else 0.0,
        gated=layer.neuron.output_gate,
    )


def _weights(layer: MinMaxLayer) -> ops.Weights:
    """The parameters, from torch's own tables: attributes of modules are slow to look up."""
    ffn, neuron = layer.ffn, layer.neuron
    parts: list[Any] = [layer.norm_conv, layer.norm_ffn, layer.norm_neuron, layer.conv]
    parts += [ffn.up, ffn.down, neuron.projection, neuron.output]
    found: list[Any] = []
    for each in parts:
        table = each._parameters
        found += [table.get("weight"), table.get("bias")]
    if isinstance(layer.conv, GatedConv):
        found[6] = layer.conv.g
    return ops.Weights(*found)
