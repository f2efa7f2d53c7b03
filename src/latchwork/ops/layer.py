"""A layer as two operations of the C++ kernel: what comes before its recurrence, and all that follows.

`layer_drive` computes `MinMaxLayer.drive` for float32 on the CPU, to rounding, with each row read and written once and
with matrix products made for small widths. `layer_respond` computes the recurrence of degree one with gate, output and
residual; the states are those of `minmax_scan`, bit for bit. r, s and the gate are columns of one tensor, and so are
their gradients: nothing is copied apart or together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.ops import cpu, dispatch, transforms
from latchwork.ops.abi import Layer, Linear, Norm, Response

NORMS = ("none", "layernorm", "rmsnorm")
ACTIVATIONS = ("relu", "relu^2", "swish")  # as csrc/abi.h numbers them


class Weights(NamedTuple):
    """Every tensor that is learnt before the recurrence, as csrc/abi.h has them; None where there is none.

    conv: (d, 2 d), or with a gated convolution g (d).
    """

    norm_conv: Tensor | None
    norm_conv_bias: Tensor | None
    norm_ffn: Tensor | None
    norm_ffn_bias: Tensor | None
    norm_neuron: Tensor | None
    norm_neuron_bias: Tensor | None
    conv: Tensor
    conv_bias: Tensor | None
    up: Tensor
    up_bias: Tensor
    down: Tensor
    down_bias: Tensor
    projection: Tensor
    projection_bias: Tensor


COUNT = len(Weights._fields)
CONV, UP, DOWN, PROJECTION = (Weights._fields.index(name) for name in ("conv", "up", "down", "projection"))


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


def unfit(*tensors: Tensor | None) -> str | None:
    """Why the kernel cannot take these tensors, or does not run as things are, or None."""
    if reason := cpu.MISSING or transforms.unfit(*tensors):
        return reason
    if dispatch.asked_for() not in ("auto", "cpu"):
        return f"backend {dispatch.asked_for()!r} is asked for"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    for each in tensors:
        if each is not None and (each.device.type != "cpu" or each.dtype not in (torch.float32, torch.bool)):
            return f"a tensor is {each.dtype} on {each.device}; it takes float32 on the CPU"
        if each is not None and not cpu.readable(each):
            return f"a tensor is a {type(each).__name__} whose numbers are not in memory as they are"
    return None


def _pointers(*tensors: Tensor | None) -> list[int | None]:
    return [None if each is None else each.data_ptr() for each in tensors]


def _contiguous(*tensors: Tensor | None) -> list[Any]:
    return [None if each is None else each.contiguous() for each in tensors]


def _layer(
    u: Tensor,
    first: Tensor | None,
    reset: Tensor | None,
    seed: Tensor | None,
    weights: list[Any],
    options: Sequence[Any],
    grads: list[Tensor | None],
) -> Layer:
    norm, epsilon, activation, gated_ffn, dropout = options
    of, grad = _pointers(*weights), _pointers(*grads)
    pairs = [(of[k], of[k + 1], grad[k], grad[k + 1]) for k in range(0, COUNT, 2)]
    sizes = (*u.shape, weights[DOWN].shape[1], weights[PROJECTION].shape[0], torch.get_num_threads())
    how = (weights[CONV].dim() == 1, gated_ffn, ACTIVATIONS.index(activation), 0 if seed is None else int(seed))
    norms = [Norm(NORMS.index(norm), epsilon, *each) for each in pairs[:3]]
    linears = [Linear(*each) for each in pairs[3:]]
    return Layer(*sizes, *how, dropout, *norms, *linears, *_pointers(u, first, reset))


def _tape_width(weights: Sequence[Any]) -> int:
    """Of the numbers kept for the gradient, how many there are for a row."""
    up, down = weights[UP], weights[DOWN]
    probe = Layer(width=down.shape[0], hidden=down.shape[1], gated_ffn=up.shape[0] != down.shape[1])
    return int(cpu.library().latchwork_layer_tape(ctypes.byref(probe)))


# The weights are arguments of their own: torch takes a list of tensors apart at every call, which costs more.
def _drive(u: Tensor, first: Any, reset: Any, seed: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    u, first, reset, *weights = _contiguous(u, first, reset, *rest[:COUNT])
    *options, record = rest[COUNT:]
    layer = _layer(u, first, reset, seed, weights, options, [None] * COUNT)
    z = cpu.empty(torch.Size((*u.shape[:2], layer.outputs)), u)
    tape = cpu.empty(torch.Size((u.shape[0] * u.shape[1], _tape_width(weights))), u) if record else u.new_empty(0)
    layer.z, layer.tape = _pointers(z, tape if record else None)
    if z.numel():
        cpu.call("latchwork_layer_forward", layer)
    return z, tape


def _drive_fake(u: Tensor, first: Any, reset: Any, seed: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    weights, record = rest[:COUNT], rest[-1]
    z = u.new_empty(*u.shape[:2], weights[PROJECTION].shape[0])
    if not record:
        return z, u.new_empty(0)
    known = all(isinstance(size, int) for size in (*weights[UP].shape, *weights[DOWN].shape))
    width = _tape_width(weights) if known else torch.library.get_ctx().new_dynamic_size()
    return z, u.new_empty(u.shape[0] * u.shape[1], width)


def _drive_backward(
    grad_z: Tensor, u: Tensor, first: Any, reset: Any, seed: Tensor | None, tape: Tensor, *rest: Any
) -> list[Tensor]:
    """The gradients of u, of first if there is one, and of the weights that there are."""
    grad_z, u, first, reset, *weights = _contiguous(grad_z.resolve_neg(), u, first, reset, *rest[:COUNT])
    make = torch.empty_like if grad_z.numel() else torch.zeros_like
    grads = [None if each is None else make(each) for each in weights]
    layer = _layer(u, first, reset, seed, weights, rest[COUNT:], grads)
    grad_u, grad_first = cpu.empty(u.shape, u), None if first is None else torch.zeros_like(first)
    layer.tape, layer.grad_z, layer.grad_u, layer.grad_first = _pointers(tape, grad_z, grad_u, grad_first)
    if grad_z.numel():
        cpu.call("latchwork_layer_backward", layer)
    return [each for each in (grad_u, grad_first, *grads) if each is not None]


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


def _response(u: Tensor, z: Tensor, x: Tensor, weight: Tensor, bias: Tensor, gated: bool) -> Response:
    rows, threads = u.shape[0] * u.shape[1], torch.get_num_threads()
    return Response(
        *(rows, u.shape[2], x.shape[2], z.shape[2], threads, gated),
        *(x.data_ptr(), z.data_ptr(), u.data_ptr()),
        Linear(weight.data_ptr(), bias.data_ptr(), None, None),
    )


def _respond(
    u: Tensor,
    z: Tensor,
    state: Tensor,
    x0: Tensor | None,
    reset: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    gated: bool,
) -> tuple[Tensor, Tensor]:
    u, z, weight, bias = _contiguous(u, z, weight, bias)
    D = weight.shape[1]
    x = cpu.forward(z[..., :D], z[..., D : 2 * D], state, reset, x0)
    y = cpu.empty(u.shape, u)
    problem = _response(u, z, x, weight, bias, gated)
    problem.y = y.data_ptr()
    if y.numel():
        cpu.call("latchwork_respond", problem)
    return y, x


def _respond_fake(
    u: Tensor, z: Tensor, state: Any, x0: Any, reset: Any, weight: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), u.new_empty(*u.shape[:2], weight.shape[1])


def _respond_backward(
    grad_y: Tensor | None,
    grad_states: Tensor | None,
    z: Tensor,
    x: Tensor,
    state: Tensor,
    x0: Tensor | None,
    reset: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    gated: bool,
) -> list[Tensor]:
    """The gradients of z, state, weight, bias, and of x0 if there is one."""
    z, weight, bias, grad_states = _contiguous(z, weight, bias, grad_states)
    D = weight.shape[1]
    grad_y = z.new_zeros(*z.shape[:2], weight.shape[0]) if grad_y is None else grad_y.resolve_neg().contiguous()
    grad_z, grad_x = cpu.empty(z.shape, z), cpu.empty(x.shape, x)
    make = torch.empty_like if z.numel() else torch.zeros_like
    grad_weight, grad_bias = make(weight), make(bias)
    problem = _response(grad_y, z, x, weight, bias, gated)
    problem.output = Linear(weight.data_ptr(), bias.data_ptr(), grad_weight.data_ptr(), grad_bias.data_ptr())
    problem.grad_y, problem.grad_x, problem.grad_z = grad_y.data_ptr(), grad_x.data_ptr(), grad_z.data_ptr()
    if z.numel():
        cpu.call("latchwork_respond_back", problem)
    if grad_states is not None:
        grad_x += grad_states
    r, s, out = z[..., :D], z[..., D : 2 * D], (grad_z[..., :D], grad_z[..., D : 2 * D])
    _, _, grad_state, grad_x0 = cpu.backward(grad_x, r, s, x, state, reset, x0, out=out)
    return [each for each in (grad_z, grad_state, grad_weight, grad_bias, grad_x0) if each is not None]


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
    _drive,
    _drive_fake,
    _drive_save,
    _drive_gradient,
)
dispatch.register(
    f"layer_drive_backward(Tensor grad_z, Tensor u, Tensor? first, Tensor? reset, Tensor? seed, Tensor tape, {_REST}) "
    "-> Tensor[]",
    _drive_backward,
    _drive_backward_fake,
)
dispatch.register(
    "layer_respond(Tensor u, Tensor z, Tensor state, Tensor? x0, Tensor? reset, Tensor weight, Tensor bias, bool gated)"
    " -> (Tensor, Tensor)",
    _respond,
    _respond_fake,
    _respond_save,
    _respond_gradient,
)
dispatch.register(
    "layer_respond_backward(Tensor? grad_y, Tensor? grad_states, Tensor z, Tensor x, Tensor state, Tensor? x0, "
    "Tensor? reset, Tensor weight, Tensor bias, bool gated) -> Tensor[]",
    _respond_backward,
    _respond_backward_fake,
)
