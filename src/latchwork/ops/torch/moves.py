"""Moves of whole levels in plain torch operations, for any device: a loop over time of a few small operations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from latchwork.ops.torch.scan import broadcast_reset, reset_carry, states_before
from latchwork.ops.transforms import hides_numbers

Gradients = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # of weights, state, s and x0, where these are


def unfit(weights: Tensor) -> None:
    """Nothing: this backend takes every tensor."""


def check_choice(choice: Tensor, options: int) -> None:
    """Raise an error if a choice is not one of the options. It is skipped on a GPU, where reading a number waits."""
    if choice.device.type != "cpu" or choice.numel() == 0 or hides_numbers():
        return
    if not 0 <= int(choice.amin()) <= int(choice.amax()) < options:
        raise ValueError(f"choice must be at least 0 and less than {options}; got {choice.amin()} to {choice.amax()}")


def new_gradients(
    empty: Callable[[Tensor, torch.Size], Tensor], choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None
) -> Gradients:
    """Tensors for a kernel to write, from empty(like, shape); it writes all of the first, and adds to the zeros."""
    grad_weights = empty(state, torch.Size((*choice.shape, choice.shape[-1] + (s is not None))))
    grad_s, grad_x0 = (None if each is None else state.new_zeros(state.shape) for each in (s, reset))
    return grad_weights, state.new_zeros(state.shape), grad_s, grad_x0


def forward(
    choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor | None, sends: bool
) -> Tensor:
    """Every state. choice: (B, T, U, N); state, s, x0: (B, U, N); reset: (B, T)."""
    check_choice(choice, choice.shape[-1] + (s is not None))
    out, x = state.new_zeros(choice.shape), state
    for t, (choice_t, x_t) in enumerate(zip(choice.unbind(1), out.unbind(1), strict=True)):
        if reset is not None and x0 is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        x = x_t.scatter_reduce_(-1, choice_t, x, "amax") if sends else x_t.copy_(_take(x, choice_t, s))
    return out.add_(0.0)


def _take(x: Tensor, choice: Tensor, s: Tensor | None) -> Tensor:
    if s is None:
        return x.gather(-1, choice)
    padded = torch.cat([x, x[..., :1]], -1)  # the last column is a place for s
    return torch.where(choice == s.shape[-1], s, padded.gather(-1, choice))


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
    """The surrogate gradients, in float32 at least. Sums are over the places upward, over time downward."""
    dtype, wide = state.dtype, torch.promote_types(state.dtype, torch.float32)
    total = torch.empty_like(grad, dtype=wide, memory_format=torch.contiguous_format)  # all that comes to each state
    carry, grad_s, grad_x0 = (torch.zeros_like(state, dtype=wide) for _ in range(3))
    degree = choice.shape[-1]
    for t in reversed(range(choice.shape[1])):
        now = torch.add(grad[:, t].to(wide), carry, out=total[:, t])
        if sends:
            carry = now.gather(-1, choice[:, t])
        else:
            places = now.new_zeros(*now.shape[:-1], degree + 1)
            carry = places.scatter_add_(-1, choice[:, t], now)[..., :degree]
            grad_s = grad_s + now.masked_fill(choice[:, t] != degree, 0)
        if reset is not None:
            carry, grad_x0 = reset_carry(reset[:, t], carry, grad_x0)
    before = states_before(x, state, reset, x0).to(wide)
    if sends:
        grad_weights = before.unsqueeze(-1) * total.unsqueeze(-2)
    else:
        options = before.unsqueeze(-2)
        if s is not None:
            own = s.to(wide).unsqueeze(1).expand_as(before).unsqueeze(-1)
            options = torch.cat([options.expand(*before.shape, degree), own], -1)
        grad_weights = total.unsqueeze(-1) * options
    of_s, of_x0 = None if s is None else grad_s.to(dtype), None if reset is None else grad_x0.to(dtype)
    return grad_weights.to(dtype), carry.to(dtype).contiguous(), of_s, of_x0
