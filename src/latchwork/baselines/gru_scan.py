"""The recurrence of a GRU: in plain torch, and as an operation of the C++ kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.baselines.linear import weight_gradient
from latchwork.ops import dispatch


def gru_scan(drive: Tensor, weight: Tensor, bias: Tensor, h0: Tensor) -> Tensor:
    """Run a GRU over drive, what its inputs give the gates, and return every h, (B, T, D).

    drive: (B, T, 3 D), the gates reset, update, new in torch's order. weight: (3 D, D), bias: (3 D,), those of h.
    h0: (B, D). The new gate is tanh(drive + reset * (weight h + bias)).
    """
    if drive.numel() and kernel.takes(drive, weight, bias, h0):
        y: Tensor = torch.ops.latchwork.gru(drive, weight, bias, h0, torch.is_grad_enabled())[0]
        return y
    return plain_gru_scan(drive, weight, bias, h0)


def plain_gru_scan(drive: Tensor, weight: Tensor, bias: Tensor, h0: Tensor) -> Tensor:
    """The definition, a loop over time."""
    h, outputs = h0, []
    for now in drive.unbind(1):
        (reset, update, fresh), (r, z, n) = now.chunk(3, -1), F.linear(h, weight, bias).chunk(3, -1)
        update = (update + z).sigmoid()
        h = (1 - update) * (fresh + (reset + r).sigmoid() * n).tanh() + update * h
        outputs.append(h)
    return torch.stack(outputs, 1)


def _sizes(drive: Tensor) -> dict[str, int]:
    return {"batch": drive.shape[0], "time": drive.shape[1], "width": drive.shape[2] // 3}


def _run(drive: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """Every h, and what the gradient needs if it is to be kept."""
    weight, bias, h0 = weight.contiguous(), bias.contiguous(), h0.contiguous()
    y, tape = (kernel.empty(*each.shape, like=drive) for each in _run_fake(drive, weight, bias, h0, keep))
    (drive,) = kernel.contiguous([drive])
    values = {"drive": drive, "weight": weight, "bias": bias, "h0": h0, "y": y, "tape": tape if keep else None}
    kernel.run("gru", kernel.Gru, **_sizes(drive), **values)
    return y, tape


def _run_fake(drive: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    B, T, D = *drive.shape[:2], weight.shape[1]
    return drive.new_empty(B, T, D), drive.new_empty(B, T, 4 * D) if keep else drive.new_empty(0)


def _backward(
    grad_y: Tensor, y: Tensor, tape: Tensor, drive: Tensor, weight: Tensor, bias: Tensor, h0: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of drive, weight, bias and h0."""
    (grad_y,) = kernel.contiguous([grad_y])
    weight, h0 = weight.contiguous(), h0.contiguous()
    grad_drive, grad_hidden = (kernel.empty(*drive.shape, like=drive) for _ in range(2))
    grad_h0 = torch.empty_like(h0)
    grads = {"grad_y": grad_y, "grad_drive": grad_drive, "grad_hidden": grad_hidden, "grad_h0": grad_h0}
    kernel.run("gru_back", kernel.Gru, **_sizes(drive), weight=weight, h0=h0, y=y, tape=tape, **grads)
    before = torch.cat([h0[:, None], y[:, :-1]], 1)
    grad_weight, grad_bias = weight_gradient(grad_hidden, before)
    return grad_drive, grad_weight[0], grad_bias, grad_h0


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output, *inputs[:-1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor, grad_tape: object) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y)
    return *torch.ops.latchwork.gru_backward(grad_y, *ctx.saved_tensors), None


_ARGUMENTS = "Tensor drive, Tensor weight, Tensor bias, Tensor h0"
dispatch.register(f"gru({_ARGUMENTS}, bool keep) -> (Tensor, Tensor)", _run, _run_fake, _save, _gradient)
dispatch.register(
    f"gru_backward(Tensor grad_y, Tensor y, Tensor tape, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    lambda grad_y, y, tape, *tensors: tuple(each.new_empty(each.shape) for each in tensors),
)
