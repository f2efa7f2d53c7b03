"""A layer by the C++ kernel, for float32: what comes before its recurrence, and all that follows.

Each row is read and written once, with matrix products made for small widths. r, s and the gate are columns of one
tensor, and so are their gradients: nothing is copied apart or together. Arguments are those of ops/layer.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel, scan
from latchwork.ops.cpu.abi import Layer, Linear, Norm, Response
from latchwork.ops.cpu.kernel import empty

NORMS = ("none", "layernorm", "rmsnorm")
ACTIVATIONS = ("relu", "relu^2", "swish")  # as csrc/abi.h numbers them


class Weights(NamedTuple):
    """Every parameter used before the recurrence, in the order of csrc/abi.h; None where there is none.

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


def unfit(u: Tensor) -> str | None:
    """Why the kernel cannot take u, or None."""
    return kernel.unfit(u, "u")


def _pointers(*tensors: Tensor | None) -> list[int | None]:
    return [None if each is None else each.data_ptr() for each in tensors]


def _contiguous(*tensors: Tensor | None) -> list[Any]:
    return [None if each is None else each.contiguous() for each in tensors]


def _check(u: Tensor, reset: Tensor | None, name: str, state: Tensor | None, width: int) -> None:
    """In a compiled graph nothing else has compared the sizes, and the kernel would read what is not there."""
    B, T, _ = u.shape
    for each, tensor, shape in ((name, state, (B, width)), ("reset", reset, (B, T))):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{each} must be {shape}; got {tuple(tensor.shape)}")


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
    *given, u_, first_, reset_ = _pointers(*weights, *grads, u, first, reset)
    of, grad = given[:COUNT], given[COUNT:]
    pairs = list(zip(of[::2], of[1::2], grad[::2], grad[1::2], strict=True))
    sizes = (*u.shape, weights[DOWN].shape[1], weights[PROJECTION].shape[0], torch.get_num_threads())
    how = (weights[CONV].dim() == 1, gated_ffn, ACTIVATIONS.index(activation), 0 if seed is None else int(seed))
    norms = [Norm(NORMS.index(norm), epsilon, *each) for each in pairs[:3]]
    return Layer(*sizes, *how, dropout, *norms, *starmap(Linear, pairs[3:]), u_, first_, reset_)


def tape_width(weights: Sequence[Any]) -> int:
    """How many numbers are kept for the gradient, for each row."""
    up, down = weights[UP], weights[DOWN]
    probe = Layer(width=down.shape[0], hidden=down.shape[1], gated_ffn=up.shape[0] != down.shape[1])
    return int(kernel.library().latchwork_layer_tape(ctypes.byref(probe)))


# Each weight is one argument: a list of tensors would cost more, since torch unpacks it at every call.
def drive(u: Tensor, first: Any, reset: Any, seed: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    """The drives z, and the numbers kept for the gradient. rest: the weights, the options, and whether to keep them."""
    _check(u, reset, "first", first, u.shape[2])
    u, first, reset, *weights = _contiguous(u, first, reset, *rest[:COUNT])
    *options, record = rest[COUNT:]
    layer = _layer(u, first, reset, seed, weights, options, [None] * COUNT)
    z = empty(torch.Size((*u.shape[:2], layer.outputs)), u)
    tape = empty(torch.Size((u.shape[0] * u.shape[1], tape_width(weights))), u) if record else u.new_empty(0)
    layer.z, layer.tape = z.data_ptr(), tape.data_ptr() if record else None
    if z.numel():
        kernel.call("latchwork_layer_forward", layer)
    return z, tape


def drive_backward(
    grad_z: Tensor, u: Tensor, first: Any, reset: Any, seed: Tensor | None, tape: Tensor, *rest: Any
) -> list[Tensor]:
    """The gradients of u, of first if there is one, and of the weights that there are."""
    grad_z, u, first, reset, *weights = _contiguous(grad_z.resolve_neg(), u, first, reset, *rest[:COUNT])
    make = torch.empty_like if grad_z.numel() else torch.zeros_like
    grads = [None if each is None else make(each) for each in weights]
    layer = _layer(u, first, reset, seed, weights, rest[COUNT:], grads)
    grad_u, grad_first = empty(u.shape, u), None if first is None else torch.zeros_like(first)
    layer.tape, layer.grad_z, layer.grad_u, layer.grad_first = _pointers(tape, grad_z, grad_u, grad_first)
    if grad_z.numel():
        kernel.call("latchwork_layer_backward", layer)
    return [each for each in (grad_u, grad_first, *grads) if each is not None]


def _response(u: Tensor, z: Tensor, x: Tensor, weight: Tensor, bias: Tensor, gated: bool) -> Response:
    rows, threads = u.shape[0] * u.shape[1], torch.get_num_threads()
    return Response(
        *(rows, u.shape[2], x.shape[2], z.shape[2], threads, gated),
        *(x.data_ptr(), z.data_ptr(), u.data_ptr()),
        Linear(weight.data_ptr(), bias.data_ptr(), None, None),
    )


def respond(
    u: Tensor,
    z: Tensor,
    state: Tensor,
    x0: Tensor | None,
    reset: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    gated: bool,
) -> tuple[Tensor, Tensor]:
    """The output y, and every state. state and x0: (B, D)."""
    u, z, weight, bias = u.contiguous(), z.contiguous(), weight.contiguous(), bias.contiguous()
    D = weight.shape[1]
    _check(u, reset, "state", state, D)
    x = scan.forward(z[..., :D], z[..., D : 2 * D], state, reset, x0)
    y = empty(u.shape, u)
    problem = _response(u, z, x, weight, bias, gated)
    problem.y = y.data_ptr()
    if y.numel():
        kernel.call("latchwork_respond", problem)
    return y, x


def respond_backward(
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
    z, weight, bias = z.contiguous(), weight.contiguous(), bias.contiguous()
    D = weight.shape[1]
    grad_y = z.new_zeros(*z.shape[:2], weight.shape[0]) if grad_y is None else grad_y.resolve_neg().contiguous()
    grad_z, grad_x = empty(z.shape, z), empty(x.shape, x)
    make = torch.empty_like if z.numel() else torch.zeros_like
    grad_weight, grad_bias = make(weight), make(bias)
    problem = _response(grad_y, z, x, weight, bias, gated)
    problem.output = Linear(weight.data_ptr(), bias.data_ptr(), grad_weight.data_ptr(), grad_bias.data_ptr())
    problem.grad_y, problem.grad_x, problem.grad_z = grad_y.data_ptr(), grad_x.data_ptr(), grad_z.data_ptr()
    if z.numel():
        kernel.call("latchwork_respond_back", problem)
    if grad_states is not None:
        grad_x += grad_states
    r, s, out = z[..., :D], z[..., D : 2 * D], (grad_z[..., :D], grad_z[..., D : 2 * D])
    _, _, grad_state, grad_x0 = scan.backward(grad_x, r, s, x, state, reset, x0, out=out)
    return [each for each in (grad_z, grad_state, grad_weight, grad_bias, grad_x0) if each is not None]
