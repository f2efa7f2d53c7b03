"""Context parallelism: one sequence cut along T over the processes of a torch.distributed group.

Within `context_parallel`, each process (a rank) holds one slice of time, in the order of the ranks, and `minmax_scan`,
the layers and whole models give each rank its slice of what one process would give. The slices may differ in length and
may be empty; they agree in all else, and so do the parameters and the state that a call starts from. Every rank must
call, and where there is a gradient every rank must call backward.

What is exchanged, for a batch of B sequences, width d and D state scalars of degree one in a layer:

- *Convolution*: it sees one step back, so a rank needs the last input of the slice before its own (the halo). Each
  rank gives its last input to all: B (d + 1) numbers. The gradient of the halo goes back in the same way: B d numbers.
- *Recurrence*: each rank composes its slice into one step (r, s) and gives it to all: B (2 D + 1) numbers. From the
  steps of the ranks before it, a rank knows the state before its slice, and scans its slice from there. In the backward
  pass the gradient of that state, B D numbers, goes from each rank to the one before it. A rank that can tell it
  without that of the rank after it sends at once. So usually none waits for more than one other; only where a latch was
  held through a whole slice does it wait.
- *Last state*: each rank gives its last state to all, B (D + 1) numbers, so that every rank returns the state after the
  whole sequence.

A number has 4 bytes (8 in float64). So for each layer a rank gives 4 B (d + 3 D + 3) bytes in the forward pass and at
most 4 B (d + D) in the backward pass, however long its slice is. The small preset (d = 90, D = 40) at B = 1 has 852 and
520 bytes for a layer. Degree n has U n^2 + U n + 1 numbers in place of 2 D + 1, with U units of n scalars.

The states are those of one process, bit for bit. The whole model agrees bit for bit where its matrix products do not
depend on the number of rows that they are computed with; a BLAS may round otherwise for other shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from latchwork.ops import dispatch, transforms
from latchwork.ops.algebra import apply
from latchwork.ops.torch.scan import Gradients, broadcast_reset

_BACKENDS = dispatch.BACKENDS["scan"]
_group: dist.ProcessGroup | None = None  # what `context_parallel` says


@contextmanager
def context_parallel(group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """In this block, tensors (B, T, ...) are this rank's slice of time of longer sequences. See the page above.

    group: the ranks, in the order of their slices; None for all of them. It holds for the whole process.

    The state that a model returns is that after the whole sequence, the same on every rank, without gradient. A loss is
    the mean over all ranks, the same number on each; its gradients are this rank's share, so that their sum over the
    ranks is the gradient of one process. (DistributedDataParallel takes the mean: multiply the loss by the number of
    ranks there.) chunk_size and generation are for one process. Units that select or transform levels evaluate, but do
    not train, on a split sequence.
    """
    global _group
    found = dist.group.WORLD if group is None and dist.is_initialized() else group
    if found is None:
        raise RuntimeError("group: there is no process group; call torch.distributed.init_process_group first")
    before, _group = _group, found
    try:
        yield
    finally:
        _group = before


def is_split() -> bool:
    """Whether tensors are slices of longer sequences: whether this is within `context_parallel`."""
    return _group is not None


def refuse(what: str) -> None:
    """Raise an error within `context_parallel`, where `what` has no meaning."""
    if _group is not None:
        raise RuntimeError(f"{what} is for one process: use it outside of context_parallel")


def scan(r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, backend: str) -> Tensor:
    """`minmax_scan` of the slices of all ranks; arguments as its operation has them. Returns this rank's slice.

    The gradients of r and s are exactly those of one process. Those of state and x0 are this rank's share, as with any
    parameter that every rank holds. That of state is zero on all ranks but the first.
    """
    if reason := transforms.unfit(r, s, state):
        raise NotImplementedError(f"a split sequence has its gradient in reverse mode alone: {reason}")
    if backend == "reference":
        raise ValueError(f"backend 'reference' runs in one process; there are auto, {', '.join(_BACKENDS)}")
    x: Tensor = _Scan.apply(r, s, state, reset, x0, _group, backend)  # type: ignore[no-untyped-call]
    return x


def edges(u: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """The step before this rank's slice u (B, T, d), and the last step of all slices; (B, d) each.

    before: (B, d), the step before the whole sequence. Only the first has a gradient.
    """
    found: tuple[Tensor, Tensor] = _Edges.apply(u, before.to(u.dtype), _group)  # type: ignore[no-untyped-call]
    return found


def mean_over_ranks(mean: Tensor, count: Tensor) -> Tensor:
    """The mean over all ranks of what has this mean and count here; its gradient is this rank's share."""
    if _group is None:
        return mean
    both = torch.stack([mean.detach().double() * count, count.double()])
    dist.all_reduce(both, group=_group)
    part = mean * (count / both[1].clamp(min=1)).to(mean.dtype)
    return part + ((both[0] / both[1].clamp(min=1)).to(mean.dtype) - part.detach())


def _gather(mine: Tensor, group: dist.ProcessGroup) -> list[Tensor]:
    """What each rank has. Half types travel as float32, exactly."""
    sent = mine.to(torch.promote_types(mine.dtype, torch.float32)).contiguous()
    ranks = [torch.empty_like(sent) for _ in range(dist.get_world_size(group))]
    dist.all_gather(ranks, sent, group=group)
    return [each.to(mine.dtype) for each in ranks]


class _Edges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, before: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
        u = u.resolve_neg()
        has_steps = u.new_full((u.shape[0], 1), float(u.shape[1] > 0))
        ranks = _gather(torch.cat([u[:, -1] if u.shape[1] else before, has_steps], 1), group)
        filled = [number for number, each in enumerate(ranks) if each[:, -1].any()]
        ctx.shape, ctx.group = u.shape, group
        # For each rank, the rank whose last step comes before its slice; None where that is `before`.
        ctx.sources = [max((each for each in filled if each < rank), default=None) for rank in range(len(ranks))]
        source = ctx.sources[dist.get_rank(group)]
        last = ranks[filled[-1]][:, :-1] if filled else before.clone()
        ctx.mark_non_differentiable(last)
        return before.clone() if source is None else ranks[source][:, :-1].clone(), last.contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor | None, ...]:
        rank = dist.get_rank(ctx.group)
        grad_u = grad.new_zeros(ctx.shape)
        for source, each in zip(ctx.sources, _gather(grad.resolve_neg(), ctx.group), strict=True):
            if source == rank:
                grad_u[:, -1] += each
        return grad_u, grad if ctx.sources[rank] is None else torch.zeros_like(grad), None


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        r: Tensor,
        s: Tensor,
        state: Tensor,
        reset: Tensor | None,
        x0: Tensor | None,
        group: dist.ProcessGroup,
        name: str,
    ) -> Tensor:
        r, s, state = r.resolve_neg(), s.resolve_neg(), state.resolve_neg()
        x0 = None if x0 is None else x0.resolve_neg()
        state = _state_before(r, s, state, reset, x0, group, name)
        x: Tensor = _BACKENDS[name].forward(r, s, state, reset, x0)
        ctx.save_for_backward(r, s, x, state, reset, x0)
        ctx.group, ctx.name = group, name
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if transforms.has_tangent(grad):
            raise NotImplementedError("minmax_scan over several ranks has no second derivative")
        grad = grad.resolve_neg()
        r, s, x, state, reset, x0 = ctx.saved_tensors
        grad_r, grad_s, carry, grad_x0 = _unwind(ctx.name, ctx.group, grad, r, s, x, state, reset, x0)
        # the carry of the other ranks went to the rank before
        grad_state = carry if dist.get_rank(ctx.group) == 0 else torch.zeros_like(carry)
        if x0 is not None:
            grad_x0 = torch.zeros_like(carry) if grad_x0 is None else grad_x0
        of_x0 = None if grad_x0 is None or x0 is None else grad_x0.to(s.dtype)
        return grad_r.to(r.dtype), grad_s.to(s.dtype), grad_state.to(s.dtype), None, of_x0, None, None


def _state_before(
    r: Tensor,
    s: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    group: dist.ProcessGroup,
    name: str,
) -> Tensor:
    """The state before this rank's slice, from the composed steps of the ranks before it."""
    whole_r, whole_s = _BACKENDS[name].compose(r, s, reset, x0)
    constant = s.new_zeros(s.shape[0]) if reset is None else reset.any(1).to(s.dtype)
    # One message: r, s and whether a reset makes the slice a constant.
    parts = [whole_r.flatten(1), whole_s.flatten(1), constant.unsqueeze(1)]
    for each in _gather(torch.cat(parts, 1), group)[: dist.get_rank(group)]:
        flat_r, flat_s, flat_constant = torch.split(each, [part.shape[1] for part in parts], dim=1)
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
