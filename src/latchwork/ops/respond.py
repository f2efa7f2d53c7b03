"""A layer's recurrence of degree one with what follows it, gate, output and residual, by the C++ kernel.

The definition is `MinMaxNeuron.recur` in plain torch with `minmax_scan`; the states are the same bits. r, s and the
gate are columns of one tensor, and so are their gradients: nothing is copied apart or together. With a bank of latches
for each pair (ops/bank.py), what is read of it takes the place of the state.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from latchwork.ops import bank as banks
from latchwork.ops import cpu
from latchwork.ops.bank import Bank
from latchwork.ops.drive import Linear
from latchwork.ops.once import refuse_second_derivative


class _Response(ctypes.Structure):
    """See csrc/layer.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "width", "state", "outputs", "threads", "gated")),
        *((name, ctypes.c_void_p) for name in ("x", "z", "u")),
        ("output", Linear),
        *((name, ctypes.c_void_p) for name in ("y", "grad_y", "grad_x", "grad_z")),
    )


def _response(u: Tensor, z: Tensor, x: Tensor, weight: Tensor, bias: Tensor, gated: bool) -> _Response:
    rows, threads = u.shape[0] * u.shape[1], torch.get_num_threads()
    return _Response(
        *(rows, u.shape[2], x.shape[2], z.shape[2], threads, gated),
        *(x.data_ptr(), z.data_ptr(), u.data_ptr()),
        Linear(weight.data_ptr(), bias.data_ptr(), None, None),
    )


class _Respond(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        z: Tensor,
        state: Tensor,
        x0: Tensor | None,
        reset: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        gated: bool,
        blur: float,
        *bank: Tensor,
    ) -> tuple[Tensor, Tensor]:
        u, z, weight, bias = u.contiguous(), z.contiguous(), weight.contiguous(), bias.contiguous()
        D = weight.shape[1]
        r, s = z[..., :D], z[..., D : 2 * D]
        if bank:
            state, x0, reset = state.contiguous(), _contiguous(x0), _contiguous(reset)
            bank = Bank(*(each.contiguous() for each in bank))
            read, x = banks.forward(r, s, bank, state, reset, x0)
        else:
            read = x = cpu.forward(r, s, state, reset, x0)
        y = cpu.empty(u.shape, u)
        problem = _response(u, z, read, weight, bias, gated)
        problem.y = y.data_ptr()
        cpu.library().latchwork_respond(ctypes.byref(problem))
        ctx.save_for_backward(z, state, x0, reset, weight, bias, x, read, *bank)
        ctx.gated, ctx.blur, ctx.shape = gated, blur, u.shape
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor | None, grad_states: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative()
        z, state, x0, reset, weight, bias, x, read, *bank = ctx.saved_tensors
        D = weight.shape[1]
        grad_y = z.new_zeros(ctx.shape) if grad_y is None else grad_y.contiguous()
        grad_z, grad_read = cpu.empty(z.shape, z), cpu.empty(read.shape, read)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        problem = _response(grad_y, z, read, weight, bias, ctx.gated)
        problem.output = Linear(weight.data_ptr(), bias.data_ptr(), grad_weight.data_ptr(), grad_bias.data_ptr())
        problem.grad_y, problem.grad_x, problem.grad_z = grad_y.data_ptr(), grad_read.data_ptr(), grad_z.data_ptr()
        cpu.library().latchwork_respond_back(ctypes.byref(problem))
        r, s = z[..., :D], z[..., D : 2 * D]
        out = grad_z[..., :D], grad_z[..., D : 2 * D]
        grad_bank: tuple[Tensor, ...] = ()
        if bank:
            args = grad_read, _contiguous(grad_states), r, s, Bank(*bank), x, state, reset, x0
            grad_bank, grad_state, grad_x0 = banks.backward(*args, blur=ctx.blur, out=out)
        else:
            if grad_states is not None:
                grad_read += grad_states
            _, _, grad_state, grad_x0 = cpu.backward(grad_read, r, s, x, state, reset, x0, blur=ctx.blur, out=out)
        return grad_y, grad_z, grad_state, grad_x0, None, grad_weight, grad_bias, None, None, *grad_bank


def _contiguous(a: Tensor | None) -> Tensor | None:
    return None if a is None else a.contiguous()


def respond(
    u: Tensor,
    z: Tensor,
    x0: Tensor,
    state: Tensor | None,
    reset: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    gated: bool,
    blur: float = 0.0,
    bank: Bank | None = None,
) -> tuple[Tensor, Tensor]:
    """y = u + W (x * sigmoid(gate)) + b and every state x, for z (B, T, 3 D) = [r, s, gate], or (B, T, 2 D) = [r, s].

    u, y: (B, T, d). x0, state, reset: as in `minmax_scan`; x0 is (D,). weight: (d, D), bias: (d,). blur: of the
    recurrence's gradient, as in `blurred_scan`, or 0. bank: then x, x0 and state are (..., K D), and in y stands what
    is read of x (ops/bank.py).
    """
    whole = x0.expand(z.shape[0], -1)
    start = whole if state is None else state
    result: tuple[Tensor, Tensor] = _Respond.apply(  # type: ignore[no-untyped-call]
        u, z, start, None if reset is None else whole, reset, weight, bias, gated, blur, *(bank or ())
    )
    return result
