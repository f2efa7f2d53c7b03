"""Banks: several latches driven by one pair of signals, each shifted by numbers of its own, and what is read of them.

A latch x_t = max(min(r_t, x_{t-1}), s_t) follows its signals with one slack, r - s. In a bank of K latches the k-th has
the signals r + shift_r[k] and s + shift_s[k], and what is read is sum_k weight[k] x[k]: some of them follow every
step, others hold on for long. In physics a sum of such latches is Preisach's model of hysteresis. It is K times the
memory for 3 K numbers more a pair, and nothing new in kind: a bank is K plain latches whose weights are tied.

The states (..., K P) of P pairs are the P first latches of all, then the second ones, and so on.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from latchwork.ops import cpu
from latchwork.ops.cpu import Rows, rows


class Bank(NamedTuple):
    """What makes the latches of one pair differ, (K P,) each, in the order of the states."""

    shift_r: Tensor
    shift_s: Tensor
    weight: Tensor


def drive_bank(signal: Tensor, shift: Tensor) -> Tensor:
    """The signals (..., K P) of all latches out of those of the pairs, (..., P).

    >>> drive_bank(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0, 0.5, 0.25]))
    tensor([1.0000, 2.0000, 1.5000, 2.2500])
    """
    shift = shift.to(signal.dtype).view(-1, signal.shape[-1])
    return (signal.unsqueeze(-2) + shift).flatten(-2)


def read_bank(x: Tensor, weight: Tensor, size: int) -> Tensor:
    """What is read, (..., P), of the states x (..., K P), K being `size`.

    >>> read_bank(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.5, 0.5, 1.0, 0.0]), 2)
    tensor([3.5000, 1.0000])
    """
    each = (x * weight.to(x.dtype)).view(*x.shape[:-1], size, x.shape[-1] // size)
    return each.sum(-2)


class _Bank(ctypes.Structure):
    """See csrc/bank.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "time", "pairs", "size", "threads")),
        ("blur", ctypes.c_double),
        *((name, Rows) for name in ("r", "s")),
        *((name, ctypes.c_void_p) for name in ("shift_r", "shift_s", "weight")),
        *((name, Rows) for name in ("x", "read", "state", "x0", "reset", "grad", "grad_x")),
        *((name, Rows) for name in ("grad_r", "grad_s", "grad_state", "grad_x0")),
        *((name, ctypes.c_void_p) for name in ("grad_shift_r", "grad_shift_s", "grad_weight")),
    )


def _problem(
    r: Tensor, s: Tensor, bank: Bank, x: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None
) -> _Bank:
    (batch, time, pairs), size = r.shape, x.shape[2] // r.shape[2]
    return _Bank(
        *(batch, time, pairs, size, torch.get_num_threads(), 0.0, rows(r), rows(s)),
        *(each.data_ptr() for each in bank),
        x=rows(x),
        state=rows(state, time=False),
        x0=rows(x0, time=False),
        reset=rows(reset),
    )


def forward(
    r: Tensor, s: Tensor, bank: Bank, state: Tensor, reset: Tensor | None, x0: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What is read and every state by the C++ kernel, (B, T, P) and (B, T, K P).

    r, s: (B, T, P). state: (B, K P), what the first step starts from. reset: (B, T) bool; the state is x0 (B, K P)
    there. All float32 on the CPU and contiguous, but r and s, of which the last dimension must be.
    """
    read, x = cpu.empty(r.shape, r), cpu.empty(r.shape[:2] + state.shape[1:], r)
    if x.numel():
        problem = _problem(r, s, bank, x, state, reset, x0)
        problem.read = rows(read)
        cpu.call("latchwork_bank", problem)
    return read, x


def backward(
    grad: Tensor,
    grad_x: Tensor | None,
    r: Tensor,
    s: Tensor,
    bank: Bank,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    *,
    blur: float,
    out: tuple[Tensor, Tensor],
) -> tuple[Bank, Tensor, Tensor | None]:
    """The gradients of the bank, of state and of x0; those of r and s are written into `out`.

    grad: of what is read. grad_x: of the states, or None. blur: see ops/blur.py; 0 for the exact gradient.
    """
    found = Bank(*(torch.zeros_like(each) for each in bank))
    grad_state, grad_x0 = torch.zeros_like(state), None if x0 is None else torch.zeros_like(state)
    if x.numel():
        problem = _problem(r, s, bank, x, state, reset, x0)
        problem.blur, problem.grad, problem.grad_x = blur, rows(grad), rows(grad_x)
        problem.grad_r, problem.grad_s = (rows(each) for each in out)
        problem.grad_state, problem.grad_x0 = rows(grad_state, time=False), rows(grad_x0, time=False)
        for name, each in found._asdict().items():
            setattr(problem, f"grad_{name}", each.data_ptr())
        cpu.call("latchwork_bank_back", problem)
    return found, grad_state, grad_x0
