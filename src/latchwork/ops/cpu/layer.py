"""A layer by the C++ kernel, for float32: the whole of it, or the part before or after its projections.

Each row is read and written once, with matrix products made for small widths. What the gradient needs is kept in one
tensor, the tape. Arguments are those of ops/layer.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel
from latchwork.ops.cpu.abi import Layer, Linear, Norm
from latchwork.ops.cpu.kernel import empty

NORMS = ("none", "layernorm", "rmsnorm")
ACTIVATIONS = ("relu", "relu^2", "swish")  # as csrc/abi.h numbers them


class Weights(NamedTuple):
    """Every parameter of a layer but x0, in the order of csrc/abi.h; None where there is none.

    conv: (d, 2 d), or with a gated convolution g (d).
    """

    norm_conv: Tensor | None = None
    norm_conv_bias: Tensor | None = None
    norm_ffn: Tensor | None = None
    norm_ffn_bias: Tensor | None = None
    norm_neuron: Tensor | None = None
    norm_neuron_bias: Tensor | None = None
    conv: Tensor | None = None
    conv_bias: Tensor | None = None
    up: Tensor | None = None
    up_bias: Tensor | None = None
    down: Tensor | None = None
    down_bias: Tensor | None = None
    projection: Tensor | None = None
    projection_bias: Tensor | None = None
    output: Tensor | None = None
    output_bias: Tensor | None = None


COUNT = len(Weights._fields)


class Tensors(NamedTuple):
    """Every tensor that a layer is given besides its weights, in the order of the operation; all but u may be None."""

    u: Tensor
    z: Tensor | None
    first: Tensor | None
    reset: Tensor | None
    last: Tensor | None
    state: Tensor | None
    x0: Tensor | None
    seed: Tensor | None


GIVEN = len(Tensors._fields)


def unfit(u: Tensor) -> str | None:
    """Why the kernel cannot take u, or None."""
    return kernel.unfit(u, "u")


def _pointers(*tensors: Tensor | None) -> list[int | None]:
    return [None if each is None else each.data_ptr() for each in tensors]


def _split(arguments: Sequence[Any]) -> tuple[Tensors, Weights]:
    """The tensors among the arguments of the operation, contiguous."""
    found: list[Any] = [None if each is None else each.contiguous() for each in arguments[: GIVEN + COUNT]]
    return Tensors(*found[:GIVEN]), Weights(*found[GIVEN:])


def _check(given: Tensors, outputs: int, state: int) -> None:
    """In a compiled graph nothing else has compared the sizes, and the kernel would read what is not there."""
    B, T, d = given.u.shape
    shapes = {"z": (B, T, outputs), "first": (B, d), "reset": (B, T), "last": (B,), "state": (B, state)}
    for name, shape in shapes.items():
        tensor = getattr(given, name)
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} must be {shape}; got {tuple(tensor.shape)}")
    if given.last is not None and given.last.dtype != torch.int64:
        raise TypeError(f"last must be int64; got {given.last.dtype}")


def _describe(given: Tensors, weights: Weights, options: Sequence[Any], grads: Sequence[Tensor | None]) -> Layer:
    """The kernel's view of a call. grads: of the weights, to be written; empty in a forward pass."""
    norm, epsilon, activation, gated_ffn, dropout, gated_output = options
    u, z, first, reset, last, state, x0, *found = _pointers(*given[:-1], *weights, *grads)
    of, grad = found[:COUNT], found[COUNT:] or [None] * COUNT
    pairs = list(zip(of[::2], of[1::2], grad[::2], grad[1::2], strict=True))
    norms = [Norm(NORMS.index(norm), epsilon, *each) for each in pairs[:3]]
    how = (weights.conv is not None and weights.conv.dim() == 1, gated_ffn, gated_output, ACTIVATIONS.index(activation))
    seed = 0 if given.seed is None else int(given.seed)
    maps = starmap(Linear, pairs[3:])
    shape = (*given.u.shape, *sizes(given, weights), torch.get_num_threads())
    return Layer(*shape, *how, seed, dropout, *norms, *maps, u, first, reset, last, state, x0, z)


def sizes(given: Tensors, weights: Weights) -> tuple[int, int, int]:
    """hidden, outputs, state: 0 where the layer has no such part."""
    hidden = 0 if weights.down is None else weights.down.shape[1]
    outputs = weights.projection.shape[0] if weights.projection is not None else given.z.shape[2]  # type: ignore[union-attr]
    return hidden, outputs, 0 if weights.output is None else weights.output.shape[1]


def tape_width(given: Tensors, weights: Weights, gated_ffn: bool) -> int:
    """How many numbers are kept for the gradient, for each row."""
    hidden, outputs, state = sizes(given, weights)
    layer = Layer(width=given.u.shape[2], hidden=hidden, outputs=outputs, state=state, gated_ffn=gated_ffn)
    layer.up.weight, layer.output.weight = weights.up is not None or None, weights.output is not None or None
    return int(kernel.library().latchwork_layer_tape(ctypes.byref(layer)))


# Each weight is one argument: a list of tensors would cost more, since torch unpacks it at every call.
def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result, the last state, the convolution's last input, and the tape. Those that are not wanted are empty.

    The result is y, or without output weights z. arguments: the tensors, the weights, the options, and whether to keep
    the tape.
    """
    given, weights = _split(arguments)
    *options, record = arguments[GIVEN + COUNT :]
    layer = _describe(given, weights, options, ())
    _check(given, layer.outputs, layer.state)
    u, whole = given.u, weights.output is not None
    out = empty(u.shape if whole else torch.Size((*u.shape[:2], layer.outputs)), u)
    x_last = u.new_empty(u.shape[0], layer.state)
    v_last = u.new_empty(u.shape[0], u.shape[2] if given.z is None else 0)
    width = kernel.library().latchwork_layer_tape(ctypes.byref(layer)) if record else 0
    tape = empty(torch.Size((u.shape[0] * u.shape[1], width)), u)
    if whole:
        layer.y, layer.x_last = out.data_ptr(), x_last.data_ptr()
    else:
        layer.z = out.data_ptr()
    if given.z is None:
        layer.v_last = v_last.data_ptr()
    layer.tape = tape.data_ptr() if record else None
    kernel.call("latchwork_layer_forward", layer)
    return out, x_last, v_last, tape


def backward(
    grad_out: Tensor | None, grad_x_last: Tensor | None, grad_v_last: Tensor | None, tape: Tensor, *arguments: Any
) -> list[Tensor]:
    """The gradients of u unless z is given, of z, first, state and x0 if given, and of the weights that there are."""
    given, weights = _split(arguments)
    grads = [None if each is None else torch.empty_like(each) for each in weights]
    layer = _describe(given, weights, arguments[GIVEN + COUNT :], grads)
    u, whole, B = given.u, weights.output is not None, given.u.shape[0]
    if grad_out is None:
        grad_out = u.new_zeros(*u.shape[:2], u.shape[2] if whole else layer.outputs)
    grad_out, grad_x_last, grad_v_last = [
        None if each is None else each.resolve_neg().contiguous() for each in (grad_out, grad_x_last, grad_v_last)
    ]
    assert grad_out is not None
    grad_u = empty(u.shape, u) if given.z is None else None
    grad_z = None if given.z is None else empty(given.z.shape, u)
    grad_first = None if given.first is None else torch.zeros_like(given.first)
    grad_start, grad_x0 = u.new_zeros(2, B, layer.state) if whole else (None, None)
    layer.tape, layer.grad_u, layer.grad_first, layer.grad_start, layer.grad_x0, *given_grads, of_z = _pointers(
        tape, grad_u, grad_first, grad_start, grad_x0, grad_x_last, grad_v_last, grad_out, grad_z
    )
    layer.grad_x_last, layer.grad_v_last, of_out = given_grads
    layer.grad_y, layer.grad_z = (of_out, of_z) if whole else (None, of_out)
    kernel.call("latchwork_layer_backward", layer)
    if not u.shape[1]:  # the last state is the one before
        if grad_first is not None and grad_v_last is not None:
            grad_first += grad_v_last
        if grad_start is not None and grad_x_last is not None:
            grad_start += grad_x_last
    if given.state is None and grad_x0 is not None:
        grad_x0 += grad_start
    found = (grad_u, grad_z, grad_first, None if given.state is None else grad_start)
    return [each for each in (*found, None if grad_x0 is None else grad_x0.sum(0), *grads) if each is not None]
