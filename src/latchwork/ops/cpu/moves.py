"""Moves of whole levels by the C++ kernel: csrc/moves.h."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel
from latchwork.ops.cpu.abi import NO_SUCH_CHOICE, Moves
from latchwork.ops.cpu.kernel import attach, empty, inner_contiguous
from latchwork.ops.torch.moves import Gradients, check_choice, new_gradients


def unfit(weights: Tensor) -> str | None:
    """Why the kernel cannot take weights, or None."""
    return kernel.unfit(weights, "weights")


def forward(
    choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None, sends: bool
) -> Tensor:
    """Every state; shapes as in ops/torch/moves.py."""
    x = empty(choice.shape, state)
    if x.numel() == 0:
        return x
    choice, (state, s, x0) = inner_contiguous(choice, 2), _starts(state, s, x0)
    moves = _moves(choice, x, state, s, reset, x0, sends)
    if kernel.call("latchwork_move", moves) == NO_SUCH_CHOICE:
        check_choice(choice, choice.shape[-1] + (s is not None))
    return x


def backward(
    grad: Tensor,
    choice: Tensor,
    x: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
) -> Gradients:
    """The surrogate gradients, in one pass over time; every sum is in the order of ops/torch/moves.py."""
    gradients = grad_weights, grad_state, grad_s, grad_x0 = new_gradients(
        lambda like, shape: empty(shape, like), choice, state, s, reset
    )
    if choice.numel() == 0:
        return gradients
    choice, x, grad = (inner_contiguous(a, 2) for a in (choice, x, grad))
    state, s, x0 = _starts(state, s, x0)
    moves = _moves(choice, x, state, s, reset, x0, sends)
    attach(moves, time=True, grad=grad, grad_weights=grad_weights)
    attach(moves, time=False, grad_state=grad_state, grad_s=grad_s, grad_x0=grad_x0)
    kernel.call("latchwork_move_back", moves)
    return gradients


def _starts(state: Tensor, s: Tensor | None, x0: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    of_s, of_x0 = (None if a is None else inner_contiguous(a, 2) for a in (s, x0))
    return inner_contiguous(state, 2), of_s, of_x0


def _moves(
    choice: Tensor, x: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None, sends: bool
) -> Moves:
    batch, time, units, degree = choice.shape
    moves = Moves(
        dtype=kernel.DTYPES[state.dtype],
        batch=batch,
        time=time,
        units=units,
        degree=degree,
        sends=sends,
        threads=torch.get_num_threads(),
    )
    attach(moves, time=True, choice=choice, x=x, reset=reset)
    attach(moves, time=False, state=state, x0=x0, s=s)
    return moves
