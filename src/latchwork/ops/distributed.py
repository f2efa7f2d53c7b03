"""Context parallelism: one sequence cut along T over the ranks of a torch.distributed process group.

Forward: each rank composes its slice into one step, all ranks exchange these (one all_gather), and each then scans
its slice from the state that the steps of the ranks before it lead to. Backward: the carry, the gradient of the state
before a slice, goes from each rank to the one before it. A rank that can tell its carry without that of the rank after
it sends at once, so that usually none waits for more than one other; only where a latch was held through a whole slice
does it wait. Values and gradients are those of the single-process scan, bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from latchwork.ops import dispatch, transforms
from latchwork.ops.algebra import apply
from latchwork.ops.scan import check_arguments, check_dense, expand
from latchwork.ops.torch.scan import Gradients, broadcast_reset

_BACKENDS = dispatch.BACKENDS["scan"]


def split_minmax_scan(
    r: Tensor,
    s: Tensor,
    x0: Tensor,
    *,
    reset: Tensor | None = None,
    group: dist.ProcessGroup | None = None,
    backend: str = "auto",
) -> Tensor:
    """`latchwork.minmax_scan` of the slices of all ranks, in the order of the ranks; returns this rank's slice of x.

    r, s, reset: this rank's slice; slices may differ in T and may be empty, but agree in all else. x0: the same on
    every rank. All ranks must call, and all must call backward.

    The gradients of r and s are exactly those of the single-process scan. That of x0 is this rank's share, as with any
    parameter that every rank holds: the sum over ranks is the whole. Without `reset` only the first rank's share is not
    zero and the sum is exact; with it, the sum of the shares may differ in the last bit.
    """
    check_dense(r=r, s=s, x0=x0, reset=reset)
    check_arguments(r, s, x0, reset, None)
    if reason := transforms.unfit(r, s, x0):
        raise NotImplementedError(f"minmax_scan over several ranks has its gradient in reverse mode alone: {reason}")
    if backend == "reference":
        raise ValueError(f"backend 'reference' runs in one process; there are auto, {', '.join(_BACKENDS)}")
    x0 = expand(x0, s.shape[:1] + s.shape[2:])
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise RuntimeError("group: there is no process group; call torch.distributed.init_process_group first")
    x: Tensor = _Scan.apply(r, s, x0, reset, group, dispatch.choose("scan", backend, r))  # type: ignore[no-untyped-call]
    return x


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, r: Tensor, s: Tensor, x0: Tensor, reset: Tensor | None, group: dist.ProcessGroup, name: str
    ) -> Tensor:
        r, s, x0 = r.resolve_neg(), s.resolve_neg(), x0.resolve_neg()
        start = None if reset is None else x0
        state = _state_before(r, s, x0, reset, group, name)
        x: Tensor = _BACKENDS[name].forward(r, s, state, reset, start)
        ctx.save_for_backward(r, s, x, state, reset, start)
        ctx.group, ctx.name = group, name
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if transforms.has_tangent(grad):
            raise NotImplementedError("minmax_scan over several ranks has no second derivative")
        grad = grad.resolve_neg()
        r, s, x, state, reset, x0 = ctx.saved_tensors
        rank = dist.get_rank(ctx.group)
        grad_r, grad_s, carry, grad_x0 = _unwind(ctx.name, ctx.group, grad, r, s, x, state, reset, x0)
        share = torch.zeros_like(carry) if grad_x0 is None else grad_x0
        share = share + carry if rank == 0 else share  # the carry of the others went to the rank before
        return grad_r.to(r.dtype), grad_s.to(s.dtype), share.to(s.dtype), None, None, None


def _state_before(
    r: Tensor, s: Tensor, x0: Tensor, reset: Tensor | None, group: dist.ProcessGroup, name: str
) -> Tensor:
    """The state before this rank's slice, from the composed steps of the ranks before it."""
    start = None if reset is None else x0
    whole_r, whole_s = _BACKENDS[name].compose(r, s, reset, start)
    constant = s.new_zeros(s.shape[0]) if reset is None else reset.any(1).to(s.dtype)
    # One message: r, s and whether a reset makes the slice a constant. Half types travel as float32, exactly.
    parts = [whole_r.flatten(1), whole_s.flatten(1), constant.unsqueeze(1)]
    mine = torch.cat(parts, 1).to(torch.promote_types(s.dtype, torch.float32))
    ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(ranks, mine, group=group)
    state = x0
    for each in ranks[: dist.get_rank(group)]:
        flat_r, flat_s, flat_constant = torch.split(each.to(s.dtype), [part.shape[1] for part in parts], dim=1)
        step_r, step_s = flat_r.reshape(whole_r.shape), flat_s.reshape(whole_s.shape)
        now = broadcast_reset(flat_constant.squeeze(1).bool(), step_s)
        state = torch.where(now, step_s, apply(step_r, step_s, state))
    return state


def _unwind(name: str, group: dist.ProcessGroup, grad: Tensor, *saved: Tensor | None) -> Gradients:
    """This rank's gradients, the carry received from the rank after it and sent to the rank before it.

    A first pass with an infinite carry shows whether what comes in matters for what goes out: if all that goes out is
    finite, nothing of it came through, and it can be sent before anything is received.
    """
    rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
    wide = torch.promote_types(grad.dtype, torch.float32)  # so that a half type's carry is not rounded on the way
    wide_grad = grad.to(wide)
    widened = [a.to(wide) if a is not None and a.is_floating_point() else a for a in saved]

    def local(carry: Tensor) -> Gradients:
        if grad.shape[1] == 0:
            return (*_BACKENDS[name].backward(wide_grad, *widened)[:2], carry, None)
        last_grad = (wide_grad[:, -1] + carry).unsqueeze(1)
        found: Gradients = _BACKENDS[name].backward(torch.cat([wide_grad[:, :-1], last_grad], 1), *widened)
        return found

    state = widened[3]
    assert state is not None
    carry = torch.zeros_like(state, memory_format=torch.contiguous_format)
    sent = None
    if 0 < rank < last:
        out = local(torch.full_like(carry, torch.inf))[2]
        if bool(out.isfinite().all()):
            sent = out.contiguous()
            dist.send(sent, dist.get_global_rank(group, rank - 1), group=group)
    if rank < last:
        dist.recv(carry, dist.get_global_rank(group, rank + 1), group=group)
    gradients = local(carry)
    if rank > 0 and sent is None:
        dist.send(gradients[2].contiguous(), dist.get_global_rank(group, rank - 1), group=group)
    return gradients
