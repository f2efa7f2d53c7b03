"""A layer as one operation: the whole of it, its part before the recurrence, or the recurrence and all that follows.

The first part is `MinMaxLayer.drive`, to rounding. Then comes the recurrence of degree one, whose states are those of
`minmax_scan`, bit for bit, with gate, output and residual. All of it is for the C++ kernel (ops/cpu/layer.py).
Elsewhere the parts of a layer are called: modules/fast_layer.py chooses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.ops import dispatch
from latchwork.ops.cpu import layer as kernel
from latchwork.ops.cpu.kernel import readable
from latchwork.ops.cpu.layer import ACTIVATIONS, COUNT, GIVEN, Tensors, Weights

__all__ = ["ACTIVATIONS", "Options", "Weights", "layer", "layer_drive", "layer_respond", "unfit"]


class Options(NamedTuple):
    """What a layer is besides its weights.

    norm: of all three, "none", "layernorm" or "rmsnorm". dropout: of the feed-forward part; 0 when not training. gated:
    whether the output has a gate.
    """

    norm: str = "none"
    epsilon: float = 0.0
    activation: str = "relu"
    gated_ffn: bool = False
    dropout: float = 0.0
    gated: bool = False


def layer(
    u: Tensor,
    first: Tensor | None,
    state: Tensor | None,
    reset: Tensor | None,
    last: Tensor | None,
    x0: Tensor,
    weights: Weights,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor]:
    """The whole layer: y (B, T, d) of u (B, T, d), the state (B, D) and the convolution's input (B, d) after step last.

    first: (B, d), what the convolution's input was before u, or None for 0. state: (B, D), the state before u, or None
    for x0 (D,). reset: (B, T) bool; where true, both are as at the start. last: (B,) int64, or None for the last step.
    """
    y, x, v, _ = _run(u, None, first, reset, last, state, x0, weights, options)
    return y, x, v


def layer_drive(
    u: Tensor, first: Tensor | None, reset: Tensor | None, last: Tensor | None, weights: Weights, options: Options
) -> tuple[Tensor, Tensor]:
    """The neuron's projections z (B, T, outputs) of u, and the convolution's input (B, d) after step last."""
    z, _, v, _ = _run(u, None, first, reset, last, None, None, weights._replace(output=None, output_bias=None), options)
    return z, v


def layer_respond(
    u: Tensor,
    z: Tensor,
    state: Tensor | None,
    reset: Tensor | None,
    last: Tensor | None,
    x0: Tensor,
    weight: Tensor,
    bias: Tensor,
    gated: bool,
) -> tuple[Tensor, Tensor]:
    """y = u + W (x * sigmoid(gate)) + b and the state x after step last, for z (B, T, 3 D) = [r, s, gate].

    Without gate z is (B, T, 2 D) = [r, s]. weight: (d, D), bias: (d,).
    """
    weights = Weights(output=weight, output_bias=bias)
    y, x, _, _ = _run(u, z, None, reset, last, state, x0, weights, Options(gated=gated))
    return y, x


def _run(
    u: Tensor,
    z: Tensor | None,
    first: Tensor | None,
    reset: Tensor | None,
    last: Tensor | None,
    state: Tensor | None,
    x0: Tensor | None,
    weights: Weights,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    seed = torch.randint(2**62, (), device="cpu") if options.dropout else None
    given = (u, z, first, reset, last, state, x0, seed)
    result: tuple[Tensor, Tensor, Tensor, Tensor] = torch.ops.latchwork.layer(
        *given, *weights, *options, torch.is_grad_enabled()
    )
    return result


def unfit(u: Tensor, *others: Tensor | None) -> str | None:
    """Why the kernel does not run with these tensors, or None. A named backend that cannot run is an error."""
    if (name := dispatch.choose("layer", "auto", u, *others)) != "cpu":
        return f"backend {name!r} runs"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    given = [each for each in (u, *others) if each is not None]
    for each in given:
        if not each.is_cpu or (each.dtype is not torch.float32 and each.dtype is not torch.bool):
            return f"a tensor is {each.dtype} on {each.device}; it takes float32 on the CPU"
    return None if readable(*given) else "a tensor is a subclass or a negated view, whose memory the kernel cannot read"


def _split(arguments: tuple[Any, ...]) -> tuple[Tensors, Weights]:
    return Tensors(*arguments[:GIVEN]), Weights(*arguments[GIVEN : GIVEN + COUNT])


def _fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (given, weights), record = _split(arguments), arguments[-1]
    u, (B, T, d) = given.u, given.u.shape
    hidden, outputs, state = kernel.sizes(given, weights)
    width: Any = 0
    if record:
        known = all(isinstance(size, int) for size in (d, hidden, outputs, state))
        gated_ffn = arguments[GIVEN + COUNT + 3]
        width = kernel.tape_width(given, weights, gated_ffn) if known else torch.library.get_ctx().new_dynamic_size()
    out = u.new_empty(B, T, outputs if weights.output is None else d)
    return out, u.new_empty(B, state), u.new_empty(B, d if given.z is None else 0), u.new_empty(B * T, width)


def _wanted(given: Tensors, weights: Weights) -> list[Tensor | None]:
    """What has a gradient, in the order of the arguments; None where there is nothing."""
    u = given.u if given.z is None else None
    return [u, given.z, given.first, given.state, given.x0, *weights]


def _backward_fake(*arguments: Any) -> list[Tensor]:
    return [each.new_empty(each.shape) for each in _wanted(*_split(arguments[4:])) if each is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[3], *inputs[: GIVEN + COUNT])
    ctx.options = inputs[GIVEN + COUNT : -1]
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    dispatch.refuse_tangent(*grads[:3])
    nothing = (None,) * (len(ctx.options) + 1)
    if grads[0] is None and grads[1] is None and grads[2] is None:
        return (None,) * (GIVEN + COUNT) + nothing
    tape, *inputs = ctx.saved_tensors
    found = iter(torch.ops.latchwork.layer_backward(*grads[:3], tape, *inputs, *ctx.options))
    given, weights = _split(tuple(inputs))
    grad_u, grad_z, grad_first, grad_state, grad_x0, *rest = [
        None if each is None else next(found) for each in _wanted(given, weights)
    ]
    if given.z is not None:
        grad_u = grads[0]  # the residual
    return grad_u, grad_z, grad_first, None, None, grad_state, grad_x0, None, *rest, *nothing


_INPUTS = ", ".join(f"Tensor{'' if name == 'u' else '?'} {name}" for name in (*Tensors._fields, *Weights._fields))
_INPUTS += ", str norm, float epsilon, str activation, bool gated_ffn, float dropout, bool gated"
dispatch.register(
    f"layer({_INPUTS}, bool record) -> (Tensor, Tensor, Tensor, Tensor)", kernel.forward, _fake, _save, _gradient
)
dispatch.register(
    f"layer_backward(Tensor? grad_out, Tensor? grad_x_last, Tensor? grad_v_last, Tensor tape, {_INPUTS}) -> Tensor[]",
    kernel.backward,
    _backward_fake,
)
