"""The one fast path of a layer: when it may be taken, and how.

`MinMaxLayer.forward` is the definition. `plan` checks once that the parts are unchanged and that the C++ kernel takes
these tensors. If so, the layer is one operation (ops/layer.py), or a part of it where the neuron has units of another
kind or the drives are known. The result equals that of the parts to rounding, and the states bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

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
    parts = Parts.of(layer)
    fits = worth_it and (drives is not None or parts.are_as_made())
    weights = parts.weights() if fits else ops.Weights()
    fits = fits and _fits(parts, weights, u, before, x, reset)
    if drives is None and not fits:
        return None

    def run() -> tuple[Tensor, State]:
        neuron = parts.neuron
        plain = fits and _is_plain(neuron)
        if drives is None and plain:
            y, after, conv = ops.layer(u, before, x, reset, last, neuron.x0, weights, parts.options())
            return y, State(conv, after)
        if drives is None:
            z, conv = ops.layer_drive(u, before, reset, last, weights, parts.options())
        else:
            ending = u[:, -1:] if last is None else at_step(u, last).unsqueeze(1)
            z, conv = drives, last_input(parts.norm_conv(ending), before)
        if plain:
            weight, bias = parts.output.weight, parts.output.bias
            y, after = ops.layer_respond(u, z, x, reset, last, neuron.x0, weight, bias, neuron.output_gate)
            return y, State(conv, after)
        y, after = neuron.respond(z, x, reset, last)
        return u + y, State(conv, after)

    return run


def drive(layer: MinMaxLayer, u: Tensor, before: Tensor | None) -> Tensor:
    """`layer.drive`, by the kernel where it takes these tensors. The parts must be as made."""
    parts = Parts.of(layer)
    weights = parts.weights()
    if _is_worth_it(u) and _fits(parts, weights, u, before):
        return ops.layer_drive(u, before, None, None, weights, parts.options())[0]
    return layer.drive(u, before)


def is_as_made(layer: MinMaxLayer) -> bool:
    """Whether every part is of a class of this library, and a call of it runs its forward and nothing else."""
    return Parts.of(layer).are_as_made()


class Parts(NamedTuple):
    """The modules of a layer, from torch's own tables: attributes of modules are slow to look up."""

    norm_conv: Any
    norm_ffn: Any
    norm_neuron: Any
    conv: Any
    ffn: Any
    neuron: Any
    up: Any
    down: Any
    projection: Any
    output: Any

    @classmethod
    def of(cls, layer: MinMaxLayer) -> Parts:
        """Of a layer; a part of the feed-forward network or of the neuron that is not there is None."""
        own: dict[str, Any] = layer._modules
        ffn, neuron = own["ffn"], own["neuron"]
        of_ffn, of_neuron = ffn._modules.get, neuron._modules.get
        norms = own["norm_conv"], own["norm_ffn"], own["norm_neuron"]
        maps = of_ffn("up"), of_ffn("down"), of_neuron("projection"), of_neuron("output")
        return cls(*norms, own["conv"], ffn, neuron, *maps)

    def are_as_made(self) -> bool:
        """See `is_as_made`."""
        conv, ffn, neuron = self.conv, self.ffn, self.neuron
        linears, norms = self[6:], self[:3]
        kind, tables = type(norms[0]), [each._parameters for each in norms]
        if (
            type(conv) not in (BasicConv, GatedConv)
            or type(ffn) not in (FeedForward, GatedFeedForward)
            or type(neuron) is not MinMaxNeuron
            or kind not in NORMS
            or conv._parameters.get("bias", conv) is None
        ):
            return False
        for each in linears:
            if type(each) is not Linear or each._parameters.get("bias") is None:
                return False
        dropouts: list[Any] = [ffn._modules["dropout"], neuron._modules["dropout"]]
        if any(type(each) is not nn.Dropout for each in dropouts):
            return False
        epsilon = getattr(norms[0], "eps", None)
        for norm, table in zip(norms, tables, strict=True):
            if type(norm) is not kind or getattr(norm, "eps", None) != epsilon:
                return False
            if kind is not nn.Identity and (table.get("weight") is None or table.get("bias", norm) is None):
                return False
        return not has_hooks(*self, *dropouts, *neuron.cells)

    def weights(self) -> ops.Weights:
        """The parameters."""
        found: list[Any] = []
        for each in (*self[:4], *self[6:]):
            table = each._parameters
            found += [table.get("weight"), table.get("bias")]
        if type(self.conv) is GatedConv:
            found[6] = self.conv.g
        return ops.Weights(*found)

    def options(self) -> ops.Options:
        """What the layer is besides its weights."""
        dropout = self.ffn._modules["dropout"]
        return ops.Options(
            norm=NORMS[type(self.norm_conv)],
            epsilon=epsilon_of(self.norm_conv),
            activation=self.ffn.act_fn,
            gated_ffn=type(self.ffn) is GatedFeedForward,
            dropout=dropout.p if dropout.training else 0.0,
            gated=self.neuron.output_gate,
        )


def _is_plain(neuron: MinMaxNeuron) -> bool:
    """Whether the second operation can compute this neuron: it has scalars only, not rounded to levels."""
    cell: Any = neuron.cells[0]
    return len(neuron.cells) == 1 and type(cell) is ScalarCell and cell.levels is None


def _is_worth_it(u: Tensor) -> bool:
    """Whether the kernel is faster for inputs of these sizes. In a compiled graph the number of rows is open."""
    return u.shape[2] <= WIDEST and (torch.compiler.is_compiling() or u.shape[0] * u.shape[1] >= FEWEST)


def _fits(parts: Parts, weights: ops.Weights, u: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernel can compute this layer, which has these weights, with these tensors."""
    ffn, neuron = parts.ffn, parts.neuron
    dropout = neuron._modules["dropout"]
    if ffn.act_fn not in ops.ACTIVATIONS or (dropout.training and dropout.p):
        return False
    d, D, x0, gated_conv = neuron.d_model, neuron.d_state, neuron.x0, type(parts.conv) is GatedConv
    conv, up, down, projection, output = weights[6::2]
    if conv is None or up is None or down is None or projection is None or output is None:
        return False
    hidden = up.shape[0] // 2 if type(ffn) is GatedFeedForward else up.shape[0]
    shapes_fit = (  # where not, the parts themselves say what is wrong
        conv.shape == ((d,) if gated_conv else (d, 2 * d))
        and (weights.conv_bias is None) == gated_conv
        and up.shape[1] == d
        and down.shape == (d, hidden)
        and projection.shape == (sum(neuron.widths), d)
        and output.shape == (d, D)
        and x0.shape == (D,)
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
