"""The recurrence of Mamba with its gate: in plain torch, and as an operation of the C++ kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch
from latchwork.ops.transforms import has_tangent

Kernel = Callable[..., tuple[Tensor, Tensor]]
SEGMENT = 16  # steps whose states are held at once in the backward pass
KERNEL_SEGMENT = 8  # the same in csrc/baselines/mamba.cpp


def selective_scan(
    dt: Tensor, u: Tensor, write: Tensor, read: Tensor, decay: Tensor, skip: Tensor, gate: Tensor, x0: Tensor
) -> tuple[Tensor, Tensor]:
    """Run x_t = exp(d_t decay) x_{t-1} + write_t d_t u_t, with d = softplus(dt), and return y and the last state.

    y_t = (<read_t, x_t> + skip u_t) silu(gate_t). dt, u, gate, y: (B, T, D). write, read: (B, T, N), B and C in the
    paper on Mamba. decay: (N, D), A there. skip: (D,), D there. x0, x: (B, N, D).
    The C++ kernel runs float32 on the CPU; on CUDA the kernel of mamba_ssm runs, where that package is installed. For
    the gradient one state in a segment is kept and the others are computed anew.
    """
    given = (dt, u, write, read, decay, skip, gate, x0)
    if u.numel() and kernel.takes(*given):
        y, x, _ = torch.ops.latchwork.selective_scan(*given, torch.is_grad_enabled())
        return y, x
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


_NAMES = ("dt", "u", "write", "read", "decay", "skip", "gate", "x0")
_Tensors = tuple[Tensor, ...]


def _given(tensors: _Tensors) -> dict[str, Any]:
    """The tensors by name, as the kernel reads them, and the sizes."""
    dt, u, write, read, decay, skip, gate, x0 = tensors
    dt, u, write, read, gate = kernel.contiguous([dt, u, write, read, gate])
    values = (dt, u, write, read, decay.contiguous(), skip.contiguous(), gate, x0.contiguous())
    sizes = dict(zip(("batch", "time", "width", "states"), (*u.shape, write.shape[2]), strict=True))
    return {**sizes, **dict(zip(_NAMES, values, strict=True))}


def _run(*inputs: Any) -> _Tensors:
    """y, the last state, and the states that the gradient needs if they are to be kept."""
    y, x, kept = (kernel.empty(*each.shape, like=inputs[1]) for each in _run_fake(*inputs))
    wanted = {"y": y, "x": x, "kept": kept if inputs[8] else None}
    kernel.run("selective_scan", kernel.SelectiveScan, **_given(inputs[:8]), **wanted)
    return y, x, kept


def _run_fake(*inputs: Any) -> _Tensors:
    u, (B, N, D), keep = inputs[1], inputs[7].shape, inputs[8]
    kept = u.new_empty(B, -(-u.shape[1] // KERNEL_SEGMENT), N, D) if keep else u.new_empty(0)
    return u.new_empty(u.shape), u.new_empty(B, N, D), kept


def _backward(grad_y: Tensor, grad_x: Tensor | None, kept: Tensor, *tensors: Tensor) -> _Tensors:
    """The gradients of all eight tensors, in the order of `selective_scan`."""
    (grad_y,), grad_x = kernel.contiguous([grad_y]), None if grad_x is None else grad_x.contiguous()
    grads = {
        f"grad_{name}": each.new_zeros(each.shape)
        if name in ("decay", "skip")
        else kernel.empty(*each.shape, like=each)
        for name, each in zip(_NAMES, tensors, strict=True)
    }
    given = {**_given(tensors), "kept": kept, "grad_y": grad_y, "grad_x": grad_x}
    kernel.run("selective_scan_back", kernel.SelectiveScan, **given, **grads)
    return tuple(grads.values())


def _backward_fake(grad_y: Tensor, grad_x: Tensor | None, kept: Tensor, *tensors: Tensor) -> _Tensors:
    return tuple(each.new_empty(each.shape) for each in tensors)


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(output[2], *inputs[:-1])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor | None, grad_x: Tensor | None, grad_kept: object) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y, grad_x)
    kept, *tensors = ctx.saved_tensors
    if grad_y is None:
        grad_y = torch.zeros_like(tensors[1])
    return *torch.ops.latchwork.selective_scan_backward(grad_y, grad_x, kept, *tensors), None


_ARGUMENTS = ", ".join(f"Tensor {name}" for name in _NAMES)
dispatch.register(
    f"selective_scan({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor)", _run, _run_fake, _save, _gradient
)
dispatch.register(
    f"selective_scan_backward(Tensor grad_y, Tensor? grad_x, Tensor kept, {_ARGUMENTS}) -> "
    f"({', '.join(['Tensor'] * 8)})",
    _backward,
    _backward_fake,
)
