"""The recurrence in plain torch operations: any device, memory linear in T, no compiler needed.

Forward: one loop over T, or, where a step is too little work to fill the device, sqrt(T) chunks side by side: each is
collapsed to one step, the chunks' steps give the state before every chunk, and all chunks run at once from there.
Backward: one loop, since the sums of the sequential gradient must be taken in its order.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from latchwork.ops import algebra
from latchwork.ops.algebra import Step, identity

SMALL_STEP = 4096  # state scalars; below this a step on a CPU costs its launch, not its work


def unfit(r: Tensor) -> None:
    """Nothing: this backend takes every tensor."""


def broadcast_reset(reset: Tensor, like: Tensor) -> Tensor:
    """Reset (B, ...) with ones appended to the number of dimensions of `like`."""
    return reset.reshape(*reset.shape, *[1] * (like.dim() - reset.dim()))


def _advance(r: Tensor, s: Tensor, x: Tensor) -> Tensor:
    """`algebra.apply` without the even sharing that only a gradient needs."""
    if r.dim() == s.dim():
        return torch.maximum(torch.minimum(r, x), s)
    return torch.maximum(torch.minimum(r, x.unsqueeze(-2)).amax(-1), s)


def _loop(r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, out: Tensor, dim: int) -> None:
    """Run the steps along dimension `dim` and write each state to out."""
    steps = zip(r.unbind(dim), s.unbind(dim), out.unbind(dim), strict=True)
    for t, (r_t, s_t, x_t) in enumerate(steps):
        if reset is not None and x0 is not None:
            state = torch.where(broadcast_reset(reset.select(dim, t), state), x0, state)
        state = x_t.copy_(_advance(r_t, s_t, state))


def _cut(a: Tensor, length: int) -> Tensor:
    """(B, chunks * length, ...) as (B, chunks, length, ...), a view."""
    return a.view(a.shape[0], a.shape[1] // length, length, *a.shape[2:])


def _chunked(
    r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, out: Tensor, length: int
) -> None:
    """`_loop` over T = chunks * length steps, all chunks at once."""
    r, s, out = (_cut(a, length) for a in (r, s, out))  # (B, chunks, length, ...)
    chunk_reset = None if reset is None else _cut(reset, length)
    start = None if x0 is None else x0.unsqueeze(1)
    whole: Step = r[:, :, 0], s[:, :, 0]
    for t in range(length):
        step: Step = r[:, :, t], s[:, :, t]
        whole = algebra.compose(whole, step) if t else step
        if chunk_reset is not None and start is not None:  # from a reset on, the chunk is a constant
            now = chunk_reset[:, :, t]
            whole = (
                torch.where(broadcast_reset(now, whole[0]), -torch.inf, whole[0]),
                torch.where(broadcast_reset(now, whole[1]), _advance(*step, start.expand_as(step[1])), whole[1]),
            )
    before = torch.empty_like(s[:, :, 0])
    for c in range(s.shape[1]):
        before[:, c] = state
        after = _advance(whole[0][:, c], whole[1][:, c], state)
        if chunk_reset is not None:  # a constant does not take in a NaN
            after = torch.where(broadcast_reset(chunk_reset[:, c].any(1), after), whole[1][:, c], after)
        state = after
    _loop(r, s, before, chunk_reset, start, out, dim=2)


def forward(r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None) -> Tensor:
    """Every state; shapes as in `reference_scan`."""
    steps, scalars = s.shape[1], math.prod(s.shape[:1] + s.shape[2:])
    out = torch.empty_like(s, memory_format=torch.contiguous_format)
    length = max(1, math.isqrt(steps))
    launch_bound = steps >= 1024 and scalars <= SMALL_STEP if s.device.type == "cpu" else steps >= 64
    done = steps // length * length if launch_bound else 0
    if done:
        head = None if reset is None else reset[:, :done]
        _chunked(r[:, :done], s[:, :done], state, head, x0, out[:, :done], length)
        state = out[:, done - 1]
    tail = None if reset is None else reset[:, done:]
    _loop(r[:, done:], s[:, done:], state, tail, x0, out[:, done:], dim=1)
    return out.add_(0.0)  # a zero is written as +0


def compose(r: Tensor, s: Tensor, reset: Tensor | None, x0: Tensor | None) -> Step:
    """All T steps as one. With a reset among them, the step is the constant (-inf, s): nothing before it matters."""
    if reset is not None and x0 is not None and reset.shape[1] > 0:
        times = torch.arange(reset.shape[1], device=reset.device)
        last = torch.where(reset, times, -1).amax(1, keepdim=True)
        earlier_r, at_r = (broadcast_reset(which, r) for which in (times < last, times == last))
        earlier_s, at_s = (broadcast_reset(which, s) for which in (times < last, times == last))
        same_r, same_s = identity(r, s)
        from_start = _advance(r, s, x0.unsqueeze(1).expand_as(s))
        r = torch.where(earlier_r, same_r, torch.where(at_r, -torch.inf, r))
        s = torch.where(earlier_s, same_s, torch.where(at_s, from_start, s))
    return algebra.collapse(r, s)


def states_before(x: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None) -> Tensor:
    """The state that each step started from, like x."""
    before = torch.cat([state.to(x.dtype).unsqueeze(1), x], 1)[:, :-1]
    if reset is not None and x0 is not None:
        before = torch.where(broadcast_reset(reset, before), x0.to(x.dtype).unsqueeze(1), before)
    return before


def reset_carry(reset: Tensor, carry: Tensor, grad_x0: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient that goes on to the step before, and that of x0: where reset (B,) is true, x0 takes the carry."""
    now = broadcast_reset(reset, carry)
    return carry.masked_fill(now, 0), torch.where(now, grad_x0 + carry, grad_x0)


Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]  # of r, s, state and x0; x0 has none without reset


def backward(
    grad: Tensor, r: Tensor, s: Tensor, x: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None
) -> Gradients:
    """The gradient of the sequential graph, ties shared evenly, from the states x that `forward` returned."""
    dtype, wide = s.dtype, torch.promote_types(s.dtype, torch.float32)
    grad, r, s, x = grad.to(wide), r.to(wide), s.to(wide), x.to(wide)
    before = states_before(x, state, reset, x0)
    gradients = _backward_one if r.dim() == s.dim() else _backward_n
    grad_r, grad_s, grad_state, grad_x0 = gradients(grad, r, s, x, before, reset)
    return grad_r.to(dtype), grad_s.to(dtype), grad_state.to(dtype), None if reset is None else grad_x0.to(dtype)


def _backward_one(
    grad: Tensor, r: Tensor, s: Tensor, x: Tensor, before: Tensor, reset: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    m = torch.minimum(r, before)
    tie_max, tie_min = m == s, r == before
    half_max, half_min = (torch.where(tie, 0.5, 1.0).to(r.dtype) for tie in (tie_max, tie_min))
    blocked = (m < s) | (r < before)
    total = torch.empty_like(grad)
    carry, grad_x0 = torch.zeros_like(before[:, :1].sum(1)), torch.zeros_like(before[:, :1].sum(1))
    steps = list(zip(*(a.unbind(1) for a in (grad, total, half_max, half_min, blocked)), strict=True))
    for t, (grad_t, total_t, half_max_t, half_min_t, blocked_t) in reversed(list(enumerate(steps))):
        torch.add(grad_t, carry, out=total_t)
        carry = (total_t * half_max_t).mul_(half_min_t).masked_fill_(blocked_t, 0)
        if reset is not None:
            carry, grad_x0 = reset_carry(reset[:, t], carry, grad_x0)
    shared = total * half_max
    grad_m = shared.masked_fill(m < s, 0)
    grad_r = (grad_m * half_min).masked_fill_(r > before, 0)
    return grad_r, shared.masked_fill_(s < m, 0), carry, grad_x0


def _backward_n(
    grad: Tensor, r: Tensor, s: Tensor, x: Tensor, before: Tensor, reset: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    before_k = before.unsqueeze(-2)  # (B, T, U, 1, N) against r (B, T, U, N, N)
    hit_m = torch.minimum(r, before_k) == x.unsqueeze(-1)
    hit_s = s == x
    count = (hit_m.sum(-1) + hit_s).to(r.dtype)
    # A NaN equals nothing, so nothing attains it: all of its arguments get a NaN.
    count = count.masked_fill_(count == 0, torch.nan)
    hit_m, hit_s = hit_m | count.isnan().unsqueeze(-1), hit_s | count.isnan()
    half = torch.where(r == before_k, 0.5, 1.0).to(r.dtype)
    to_x = hit_m & ~(r < before_k)
    share = torch.empty_like(grad)
    carry, grad_x0 = torch.zeros_like(before[:, :1].sum(1)), torch.zeros_like(before[:, :1].sum(1))
    steps = list(zip(*(a.unbind(1) for a in (grad, share, count, half, to_x)), strict=True))
    for t, (grad_t, share_t, count_t, half_t, to_x_t) in reversed(list(enumerate(steps))):
        torch.div(grad_t + carry, count_t, out=share_t)
        carry = torch.where(to_x_t, share_t.unsqueeze(-1) * half_t, 0.0).sum(-2)
        if reset is not None:
            carry, grad_x0 = reset_carry(reset[:, t], carry, grad_x0)
    grad_r = torch.where(hit_m & ~(r > before_k), share.unsqueeze(-1) * half, 0.0)
    return grad_r, torch.where(hit_s, share, 0.0), carry, grad_x0
