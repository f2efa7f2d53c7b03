"""The recurrence by the C++ kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel
from latchwork.ops.cpu.abi import Problem
from latchwork.ops.cpu.kernel import attach, empty, inner_contiguous
from latchwork.ops.torch.scan import Gradients


def unfit(r: Tensor) -> str | None:
    """Why the kernel cannot take r, or None."""
    return kernel.unfit(r, "r")


def _problem(r: Tensor, s: Tensor, chunk: int) -> Problem:
    degree = 0 if r.dim() == s.dim() else s.shape[-1]
    batch, time, width = s.shape[:3]
    problem = Problem(
        dtype=kernel.DTYPES[s.dtype],
        batch=batch,
        time=time,
        width=width,
        degree=degree,
        threads=torch.get_num_threads(),
        chunk=chunk,
    )
    attach(problem, time=True, r=r, s=s)
    return problem


def _prepare(r: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return inner_contiguous(r, r.dim() - 2), inner_contiguous(s, s.dim() - 2)


def _prepare_start(*starts: Tensor | None) -> list[Tensor | None]:
    return [None if a is None else inner_contiguous(a, a.dim() - 1) for a in starts]


def forward(
    r: Tensor,
    s: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    *,
    chunk: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """Every state; shapes as in `reference_scan`. chunk: steps that run in parallel to others, 0 to choose."""
    x = empty(s.shape, s) if out is None else out
    if x.numel() == 0:
        return x
    r, s = _prepare(r, s)
    state_, x0_ = _prepare_start(state, x0)
    problem = _problem(r, s, chunk)
    attach(problem, time=True, x=x, reset=reset)
    attach(problem, time=False, state=state_, x0=x0_)
    kernel.call("latchwork_forward", problem)
    return x


def backward(
    grad: Tensor,
    r: Tensor,
    s: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    *,
    chunk: int = 0,
    out: tuple[Tensor, Tensor] | None = None,
) -> Gradients:
    """The gradient of the sequential graph, ties shared evenly, from the states x that `forward` returned."""
    grad_r, grad_s = (empty(r.shape, r), empty(s.shape, s)) if out is None else out
    grad_state = state.new_zeros(state.shape)
    grad_x0 = None if reset is None else state.new_zeros(state.shape)
    if s.numel() == 0:
        return grad_r, grad_s, grad_state, grad_x0
    r, s = _prepare(r, s)
    grad, x = _prepare(grad, x)
    state_, x0_ = _prepare_start(state, x0)
    problem = _problem(r, s, chunk)
    attach(problem, time=True, x=x, reset=reset, grad=grad, grad_r=grad_r, grad_s=grad_s)
    attach(problem, time=False, state=state_, x0=x0_, grad_state=grad_state, grad_x0=grad_x0)
    kernel.call("latchwork_backward", problem)
    return grad_r, grad_s, grad_state, grad_x0


def compose(r: Tensor, s: Tensor, reset: Tensor | None, x0: Tensor | None) -> tuple[Tensor, Tensor]:
    """All T steps as one: what `algebra.collapse` returns, or another pair that maps every state alike."""
    whole_r = r.new_empty(r.shape[:1] + r.shape[2:])
    whole_s = s.new_empty(s.shape[:1] + s.shape[2:])
    if whole_s.numel() == 0:
        return whole_r, whole_s
    r, s = _prepare(r, s)
    (x0_,) = _prepare_start(x0)
    problem = _problem(r, s, 0)
    attach(problem, time=True, reset=reset)
    attach(problem, time=False, x0=x0_, whole_r=whole_r, whole_s=whole_s)
    kernel.call("latchwork_compose", problem)
    return whole_r, whole_s
