"""A layer as two operations: what comes before its recurrence, and all that follows.

`layer_drive` computes `MinMaxLayer.drive`, to rounding. `layer_respond` computes the recurrence of degree one with
gate, output and residual; the states are those of `minmax_scan`, bit for bit. Both are for the C++ kernel
(ops/cpu/layer.py). Elsewhere the parts of a layer are called: modules/fast_layer.py chooses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.ops import dispatch
from latchwork.ops.cpu import layer as kernel
from latchwork.ops.cpu.kernel import readable
from latchwork.ops.cpu.layer import ACTIVATIONS, CONV, COUNT, DOWN, PROJECTION, UP, Weights

__all__ = ["ACTIVATIONS", "CONV", "Weights", "layer_drive", "layer_respond", "unfit"]


def layer_drive(
    u: Tensor,
    first: Tensor | None,
    reset: Tensor | None,
    weights: Weights,
    *,
    norm: str,
    epsilon: float,
    activation: str,
    gated_ffn: bool,
    dropout: float,
) -> Tensor:
    """The neuron's projections z (B, T, outputs) of u (B, T, d).

    first: (B, d), what the convolution's input was before u, or None for 0. reset: (B, T) bool; where true, it is 0.
    norm: of all three, "none", "layernorm" or "rmsnorm". dropout: of the feed-forward part; 0 when not training.
    """
    record = torch.is_grad_enabled()
    seed = torch.randint(2**62, (), device="cpu") if dropout else None
    options = (norm, epsilon, activation, gated_ffn, dropout)
    z: Tensor = torch.ops.latchwork.layer_drive(u, first, reset, seed, *weights, *options, record)[0]
    return z


def layer_respond(
    u: Tensor,
    z: Tensor,
    x0: Tensor,
    state: Tensor | None,
    reset: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    gated: bool,
) -> tuple[Tensor, Tensor]:
    """y = u + W (x * sigmoid(gate)) + b and every state x, for z (B, T, 3 D) = [r, s, gate], or (B, T, 2 D) = [r, s].

    u, y: (B, T, d). x0, state, reset: as in `minmax_scan`; x0 is (D,). weight: (d, D), bias: (d,).
    """
    whole = x0.expand(z.shape[0], -1)
    start = whole if state is None else state
    result: tuple[Tensor, Tensor] = torch.ops.latchwork.layer_respond(
        u, z, start, None if reset is None else whole, reset, weight, bias, gated
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
        if each.device.type != "cpu" or each.dtype not in (torch.float32, torch.bool):
            return f"a tensor is {each.dtype} on {each.device}; it takes float32 on the CPU"
    return None if readable(*given) else "a tensor is a subclass or a negated view, whose memory the kernel cannot read"


def _drive_fake(u: Tensor, first: Any, reset: Any, seed: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    weights, record = rest[:COUNT], rest[-1]
    z = u.new_empty(*u.shape[:2], weights[PROJECTION].shape[0])
    if not record:
        return z, u.new_empty(0)
    known = all(isinstance(size, int) for size in (*weights[UP].shape, *weights[DOWN].shape))
    width = kernel.tape_width(weights) if known else torch.library.get_ctx().new_dynamic_size()
    return z, u.new_empty(u.shape[0] * u.shape[1], width)


def _drive_backward_fake(
    grad_z: Tensor, u: Tensor, first: Any, reset: Any, seed: Any, tape: Tensor, *rest: Any
) -> list[Tensor]:
    return [each.new_empty(each.shape) for each in (u, first, *rest[:COUNT]) if each is not None]


def _drive_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:4], output[1], *inputs[4 : 4 + COUNT])
    ctx.options = inputs[4 + COUNT : -1]
    ctx.set_materialize_grads(False)


def _drive_gradient(ctx: Any, grad_z: Tensor | None, grad_tape: object) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_z)
    if grad_z is None:
        return (None,) * (4 + COUNT + 6)
    u, first, *others = ctx.saved_tensors
    found = iter(torch.ops.latchwork.layer_drive_backward(grad_z, u, first, *others, *ctx.options))
    grad_u, grad_first = next(found), None if first is None else next(found)
    grads = [None if each is None else next(found) for each in others[3:]]
    return grad_u, grad_first, None, None, *grads, *(None,) * 6


def _respond_fake(
    u: Tensor, z: Tensor, state: Any, x0: Any, reset: Any, weight: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), u.new_empty(*u.shape[:2], weight.shape[1])


def _respond_backward_fake(
    grad_y: Any, grad_states: Any, z: Tensor, x: Any, state: Tensor, x0: Any, reset: Any, weight: Tensor, *rest: Any
) -> list[Tensor]:
    bias = rest[0]
    like = [z, state, weight, bias] + ([] if reset is None else [state])
    return [each.new_empty(each.shape) for each in like]


def _respond_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, z, state, x0, reset, weight, bias, ctx.gated = inputs
    ctx.save_for_backward(z, output[1], state, x0, reset, weight, bias)
    ctx.set_materialize_grads(False)


def _respond_gradient(ctx: Any, grad_y: Tensor | None, grad_states: Tensor | None) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y, grad_states)
    z, x, state, x0, reset, weight, bias = ctx.saved_tensors
    backward = torch.ops.latchwork.layer_respond_backward
    found = backward(grad_y, grad_states, z, x, state, x0, reset, weight, bias, ctx.gated)
    grad_z, grad_state, grad_weight, grad_bias, *grad_x0 = found
    return grad_y, grad_z, grad_state, grad_x0[0] if grad_x0 else None, None, grad_weight, grad_bias, None


_REST = ", ".join(f"Tensor? {name}" for name in Weights._fields)
_REST += ", str norm, float epsilon, str activation, bool gated_ffn, float dropout"
dispatch.register(
    f"layer_drive(Tensor u, Tensor? first, Tensor? reset, Tensor? seed, {_REST}, bool record) -> (Tensor, Tensor)",
    kernel.drive,
    _drive_fake,
    _drive_save,
    _drive_gradient,
)
dispatch.register(
    f"layer_drive_backward(Tensor grad_z, Tensor u, Tensor? first, Tensor? reset, Tensor? seed, Tensor tape, {_REST}) "
    "-> Tensor[]",
    kernel.drive_backward,
    _drive_backward_fake,
)
dispatch.register(
    "layer_respond(Tensor u, Tensor z, Tensor state, Tensor? x0, Tensor? reset, Tensor weight, Tensor bias, bool gated)"
    " -> (Tensor, Tensor)",
    kernel.respond,
    _respond_fake,
    _respond_save,
    _respond_gradient,
)
dispatch.register(
    "layer_respond_backward(Tensor? grad_y, Tensor? grad_states, Tensor z, Tensor x, Tensor state, Tensor? x0, "
    "Tensor? reset, Tensor weight, Tensor bias, bool gated) -> Tensor[]",
    kernel.respond_backward,
    _respond_backward_fake,
)
