"""A gated feed-forward network with its norm and residual: in torch, and as one operation of the C++ kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.baselines import kernel
from latchwork.baselines.linear import Norm, given, linear, rows
from latchwork.ops import dispatch


def gated_feedforward(
    u: Tensor,
    norm: Norm,
    up: tuple[Tensor, Tensor | None],
    down: tuple[Tensor, Tensor | None],
    *,
    activation: str,
    dropout: float = 0.0,
) -> Tensor:
    """u + dropout(down(activation(gate) * value)), gate and value being the halves of up(norm(u)).

    u: (..., D). up: weight (2 H, D), bias (2 H,) or None. down: weight (D, H), bias. The norm is of whole rows.
    """
    if norm.heads == 1 and u.numel() and kernel.takes(u, norm.weight, *up, *down):
        seed = torch.randint(2**62, ()) if dropout else None
        options = (norm.epsilon, norm.centred, activation, dropout)
        y: Tensor = torch.ops.latchwork.feedforward(u, norm.weight, *up, *down, seed, *options)[0]
        return y
    both = linear(u, *up, norm=norm)
    return linear(both, *down, paired=True, activation=activation, residual=u, dropout=dropout)


_Tensors = tuple[Tensor, ...]
_NAMES = ("u", "norm", "up", "up_bias", "down", "down_bias")


def _maps(both: Tensor, *inputs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the kernel is given for each of the two maps."""
    u, norm, up, up_bias, down, down_bias, seed, epsilon, centred, activation, dropout = inputs
    first = given((u, up, up_bias, norm, *[None] * 5), (epsilon, 1, centred, "silu", False, 0.0, False))
    options = (0.0, 1, False, activation, True, dropout, False)
    return first, given((both, down, down_bias, *[None] * 4, u, seed), options)


def _run(*inputs: Any) -> _Tensors:
    """The result, and what is between the maps."""
    y, both = (kernel.empty(*each.shape, like=inputs[0]) for each in _run_fake(*inputs))
    up, down = _maps(both, *inputs)
    maps = {"up": kernel.filled(kernel.LinearMap, **up, y=both), "down": kernel.filled(kernel.LinearMap, **down, y=y)}
    kernel.run("feedforward", kernel.FeedForward, **maps)
    return y, both


def _run_fake(*inputs: Any) -> _Tensors:
    u, up = inputs[0], inputs[2]
    return u.new_empty(u.shape), u.new_empty(*u.shape[:-1], up.shape[0])


def _backward(grad_y: Tensor, both: Tensor, *inputs: Any) -> list[Tensor]:
    """The gradients of the first six tensors; that of a bias that is not there is empty."""
    found = [kernel.empty(*each.shape, like=each) for each in _backward_fake(grad_y, both, *inputs)]
    u, norm, up, up_bias, down, down_bias = (each if len(each) else None for each in found)
    first, second = _maps(both, *inputs)
    grad_y = rows(grad_y)  # type: ignore[assignment]
    first |= {"grad_x": rows(u), "grad_norm": norm, "grad_weight": up, "grad_bias": up_bias, "added": grad_y}
    second |= {"grad_y": grad_y, "grad_weight": down, "grad_bias": down_bias}
    maps = {"up": kernel.filled(kernel.LinearMap, **first), "down": kernel.filled(kernel.LinearMap, **second)}
    kernel.run("feedforward", kernel.FeedForward, **maps)
    return found


def _backward_fake(grad_y: Tensor, both: Tensor, *inputs: Any) -> list[Tensor]:
    return [grad_y.new_empty(0 if each is None else each.shape) for each in inputs[:6]]


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(output[1], *inputs[:7])
    ctx.options = inputs[7:]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # else zeros are written for what is between the maps


def _gradient(ctx: Any, grad_y: Tensor, grad_both: object) -> tuple[Tensor | None, ...]:
    dispatch.refuse_tangent(grad_y)
    found = torch.ops.latchwork.feedforward_backward(grad_y, *ctx.saved_tensors, *ctx.options)
    return *(each if len(each) else None for each in found), *([None] * 5)


_ARGUMENTS = ", ".join(f"Tensor{'?' if name.endswith('bias') else ''} {name}" for name in _NAMES)
_ARGUMENTS += ", Tensor? seed, float epsilon, bool centred, str activation, float dropout"
dispatch.register(f"feedforward({_ARGUMENTS}) -> (Tensor, Tensor)", _run, _run_fake, _save, _gradient)
dispatch.register(
    f"feedforward_backward(Tensor grad_y, Tensor both, {_ARGUMENTS}) -> Tensor[]",
    _backward,
    _backward_fake,
)
