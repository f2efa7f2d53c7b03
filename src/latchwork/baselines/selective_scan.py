"""The recurrence of Mamba with its gate in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from latchwork.ops.transforms import has_tangent

Kernel = Callable[..., tuple[Tensor, Tensor]]
SEGMENT = 16  # steps whose states are held at once in the backward pass


def selective_scan(
    dt: Tensor, u: Tensor, write: Tensor, read: Tensor, decay: Tensor, skip: Tensor, gate: Tensor, x0: Tensor
) -> tuple[Tensor, Tensor]:
    """Run x_t = exp(d_t decay) x_{t-1} + write_t d_t u_t, with d = softplus(dt), and return y and the last state.

    y_t = (<read_t, x_t> + skip u_t) silu(gate_t). dt, u, gate, y: (B, T, D). write, read: (B, T, N), B and C in the
    paper on Mamba. decay: (N, D), A there. skip: (D,), D there. x0, x: (B, N, D).
    On CUDA the kernel of mamba_ssm runs, where that package is installed. For the gradient one state in a segment is
    kept and the others are computed anew.
    """
    dt = F.softplus(dt)
    y, x = plain_selective_scan(dt, u, write, read, decay, x0)
    return (y + u * skip) * F.silu(gate), x


def plain_selective_scan(
    dt: Tensor, u: Tensor, write: Tensor, read: Tensor, decay: Tensor, x0: Tensor
) -> tuple[Tensor, Tensor]:
    """The recurrence alone, without softplus, skip and gate: a loop over time in torch."""
    if u.is_cuda and (found := mamba_ssm_kernel()) is not None:
        return by_kernel(found, dt, u, write, read, decay, x0)
    y, x = _SelectiveScan.apply(dt, dt * u, write, read, decay, x0)  # type: ignore[no-untyped-call]
    return y, x


@cache
def mamba_ssm_kernel() -> Kernel | None:
    """mamba_ssm's selective_scan_fn, or None if the package is not installed."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None
    kernel: Kernel = selective_scan_fn
    return kernel


def by_kernel(
    kernel: Kernel, dt: Tensor, u: Tensor, write: Tensor, read: Tensor, decay: Tensor, x0: Tensor
) -> tuple[Tensor, Tensor]:
    """`plain_selective_scan` by a kernel that starts from 0. The recurrence is linear: what x0 adds needs no loop."""
    channels_first = [each.transpose(1, 2).contiguous() for each in (u, dt)]
    steps_last = [each.transpose(1, 2).contiguous() for each in (write, read)]
    y, x = kernel(*channels_first, decay.T.contiguous(), *steps_last, return_last_state=True)
    left = (dt.cumsum(1)[:, :, None] * decay).exp() * x0[:, None]  # (B, T, N, D), what is left of x0 at each step
    return y.transpose(1, 2) + torch.einsum("btn,btnd->btd", read, left), x.transpose(1, 2) + left[:, -1]


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, dt: Tensor, v: Tensor, write: Tensor, read: Tensor, decay: Tensor, x0: Tensor
    ) -> tuple[Tensor, Tensor]:
        y = torch.empty_like(v)
        x, factor, kept = x0.clone(), torch.empty_like(x0), []
        for t in range(v.shape[1]):
            if t % SEGMENT == 0:
                kept.append(x.clone())
            torch.mul(dt[:, t, None], decay, out=factor)
            x.mul_(factor.exp_()).addcmul_(write[:, t, :, None], v[:, t, None])
            y[:, t] = (read[:, t, None] @ x)[:, 0]
        ctx.save_for_backward(dt, v, write, read, decay, *kept)
        return y, x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_x: Tensor) -> tuple[Tensor, ...]:
        if has_tangent(grad_y, grad_x):
            raise NotImplementedError("selective_scan has no second derivative")
        dt, v, write, read, decay, *kept = ctx.saved_tensors
        grad_dt, grad_v = torch.empty_like(dt), torch.empty_like(v)
        grad_write, grad_read = torch.empty_like(write), torch.empty_like(read)
        grad = grad_x.clone()  # of the state after the step that is looked at
        grad_decay, product = torch.zeros_like(grad), torch.empty_like(grad)
        factors = grad.new_empty(SEGMENT, *grad.shape)
        states = grad.new_empty(SEGMENT + 1, *grad.shape)
        for start in reversed(range(0, v.shape[1], SEGMENT)):
            steps = range(start, min(start + SEGMENT, v.shape[1]))
            states[0] = kept[start // SEGMENT]
            for t, factor, before, after in zip(steps, factors, states, states[1:]):  # noqa: B905 - the last is short
                torch.mul(dt[:, t, None], decay, out=factor)
                torch.mul(factor.exp_(), before, out=after).addcmul_(write[:, t, :, None], v[:, t, None])
            for t in reversed(steps):
                factor, before, after = factors[t - start], states[t - start], states[t - start + 1]
                grad_read[:, t] = torch.mul(after, grad_y[:, t, None], out=product).sum(-1)
                grad.addcmul_(read[:, t, :, None], grad_y[:, t, None])
                grad_write[:, t] = torch.mul(grad, v[:, t, None], out=product).sum(-1)
                grad_v[:, t] = (write[:, t, None] @ grad)[:, 0]
                torch.mul(grad.mul_(factor), before, out=product)  # gradient of dt_t decay
                grad_decay.addcmul_(product, dt[:, t, None])
                grad_dt[:, t] = product.mul_(decay).sum(1)
        return grad_dt, grad_v, grad_write, grad_read, grad_decay.sum(0), grad
