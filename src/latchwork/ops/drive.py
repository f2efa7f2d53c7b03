"""What a layer does before its recurrence, as one pass of the C++ kernel over the rows, in both directions.

The definition is `MinMaxLayer.drive` in plain torch. This computes the same for float32 on the CPU, to rounding, with
each row read and written once and with matrix products made for small widths.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.ops import cpu
from latchwork.ops.once import refuse_second_derivative

NORMS = ("none", "layernorm", "rmsnorm")


class Weights(NamedTuple):
    """Every tensor that is learnt, in the order of csrc/layer.h; None where the options leave it out.

    conv_weight: (d, 2 d), or with a gated convolution g (d).
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


class Options(NamedTuple):
    """What else the pass must know."""

    norm: str  # of all three
    epsilon: float
    gated_ffn: bool
    squared: bool  # the activation is relu^2, not relu
    dropout: float  # of the feed-forward; 0 when not training


_POINTER = ctypes.c_void_p


class _Norm(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int64),
        ("epsilon", ctypes.c_double),
        *((name, _POINTER) for name in ("weight", "bias", "grad_weight", "grad_bias")),
    )


class Linear(ctypes.Structure):
    """See csrc/layer.h."""

    _fields_ = tuple((name, _POINTER) for name in ("weight", "bias", "grad_weight", "grad_bias"))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "time", "width", "hidden", "outputs", "threads")),
        *((name, ctypes.c_int64) for name in ("gated_conv", "gated_ffn", "squared", "seed")),
        ("dropout", ctypes.c_double),
        *((name, _Norm) for name in ("norm_conv", "norm_ffn", "norm_neuron")),
        *((name, Linear) for name in ("conv", "up", "down", "projection")),
        *((name, _POINTER) for name in ("u", "first", "reset", "z", "tape", "grad_z", "grad_u", "grad_first")),
    )


def _pointer(a: Tensor | None) -> int | None:
    return None if a is None else a.data_ptr()


def _layer(
    u: Tensor,
    first: Tensor | None,
    reset: Tensor | None,
    weights: Weights,
    options: Options,
    seed: int,
    grads: list[Tensor | None] | None = None,
) -> _Layer:
    pointers = [_pointer(each) for each in weights]
    grad_pointers = [None] * len(weights) if grads is None else [_pointer(each) for each in grads]
    kind = NORMS.index(options.norm)
    both = list(zip(pointers[::2], pointers[1::2], grad_pointers[::2], grad_pointers[1::2], strict=True))
    norms = [_Norm(kind, options.epsilon, *each) for each in both[:3]]
    linears = [Linear(*each) for each in both[3:]]
    return _Layer(
        u.shape[0],
        u.shape[1],
        u.shape[2],
        weights.down.shape[1],
        weights.projection.shape[0],
        torch.get_num_threads(),
        weights.conv.dim() == 1,
        options.gated_ffn,
        options.squared,
        seed,
        options.dropout,
        *norms,
        *linears,
        u=_pointer(u),
        first=_pointer(first),
        reset=_pointer(reset),
    )


def _call(name: str, layer: _Layer) -> int:
    result: int = getattr(cpu.library(), name)(ctypes.byref(layer))
    return result


class _Drive(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        first: Tensor | None,
        reset: Tensor | None,
        options: Options,
        record: bool,
        *weights: Tensor | None,
    ) -> Tensor:
        made = Weights(*(None if each is None else each.contiguous() for each in weights))  # type: ignore[arg-type]
        u, first = u.contiguous(), None if first is None else first.contiguous()
        reset = None if reset is None else reset.contiguous()
        seed = int(torch.randint(2**62, ())) if options.dropout else 0
        layer = _layer(u, first, reset, made, options, seed)
        z = cpu.empty(torch.Size((*u.shape[:2], layer.outputs)), u)
        layer.z = z.data_ptr()
        if record:
            tape = cpu.empty(torch.Size((u.shape[0] * u.shape[1], _call("latchwork_layer_tape", layer))), u)
            layer.tape = tape.data_ptr()
            ctx.save_for_backward(u, first, reset, tape, *made)
            ctx.options, ctx.seed = options, seed
        _call("latchwork_layer_forward", layer)
        return z

    @staticmethod
    def backward(ctx: Any, grad_z: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        u, first, reset, tape, *weights = ctx.saved_tensors
        grads = [None if each is None else torch.zeros_like(each) for each in weights]
        layer = _layer(u, first, reset, Weights(*weights), ctx.options, ctx.seed, grads)
        grad_z = grad_z.contiguous()
        grad_u = cpu.empty(u.shape, u)
        grad_first = None if first is None else torch.zeros_like(first)
        layer.tape, layer.grad_z = tape.data_ptr(), grad_z.data_ptr()
        layer.grad_u, layer.grad_first = grad_u.data_ptr(), _pointer(grad_first)
        _call("latchwork_layer_backward", layer)
        return grad_u, grad_first, None, None, None, *grads


def drive(u: Tensor, first: Tensor | None, reset: Tensor | None, weights: Weights, options: Options) -> Tensor:
    """The neuron's projections z (B, T, outputs) of u (B, T, d).

    first: (B, d), what the convolution's input was before u, or None for 0. reset: (B, T) bool; where true, it is 0.
    """
    inputs = (u, first, *weights)
    record = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in inputs)
    z: Tensor = _Drive.apply(u, first, reset, options, record, *weights)  # type: ignore[no-untyped-call]
    return z


def unfit(*tensors: Tensor | None) -> str | None:
    """Why the kernel cannot take these tensors, or None."""
    if cpu.MISSING:
        return cpu.MISSING
    for each in tensors:
        if each is not None and (each.device.type != "cpu" or each.dtype not in (torch.float32, torch.bool)):
            return f"a tensor is {each.dtype} on {each.device}; it takes float32 on the CPU"
        if each is not None and type(each) not in (Tensor, torch.nn.Parameter):
            return f"a tensor is a {type(each).__name__}"
    return None
