"""choose_rows: a hard choice for each row of logits, and the soft weights that get the gradient in its place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.ops import dispatch
from latchwork.ops.arguments import DTYPES, check_dense
from latchwork.ops.cpu import choice as kernel
from latchwork.ops.torch.choice import plain_choice


def choose_rows(
    logits: Tensor, own: Tensor | None = None, *, temperature: float = 1.0, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Each row by itself, its largest logit: weights (..., N, K), their softmax; choice (..., N) int64.

    logits: (..., N, K). own: (..., N), one more logit at the end of each row; the weights are then (..., N, K + 1).
    temperature: what the logits are divided by for the softmax; the choice does not depend on it.
    Of equal logits either may be chosen. backend: "auto", "torch" (any device) or "cpu" (C++). Halves are computed in
    float32.

    >>> choose_rows(torch.tensor([[0.0, 2.0], [0.0, 1.0]]))[1]
    tensor([1, 1])
    >>> choose_rows(torch.tensor([[0.0, 2.0], [0.0, 1.0]]), torch.tensor([1.0, 3.0]))[1]
    tensor([1, 2])
    """
    check_dense(logits=logits, own=own)
    if logits.dtype not in DTYPES:
        raise TypeError(f"logits must be float32, float64, bfloat16 or float16; got {logits.dtype}")
    if logits.dim() < 2 or logits.shape[-1] == 0:
        raise ValueError(f"logits must be (..., N, K) with K >= 1; got {tuple(logits.shape)}")
    if own is not None and (own.shape != logits.shape[:-1] or own.dtype != logits.dtype):
        raise ValueError(
            f"own must be (..., N) = {tuple(logits.shape[:-1])} and {logits.dtype}, as logits; "
            f"got {tuple(own.shape)} and {own.dtype}"
        )
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite; got {temperature}")
    if dispatch.choose("choice", backend, logits, own) != "cpu":
        return plain_choice(logits, own, temperature)
    weights, choice = torch.ops.latchwork.choose_rows(logits, own, temperature)
    return weights, choice


def _fake(logits: Tensor, own: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    weights = logits.new_empty(*logits.shape[:-1], logits.shape[-1] + (own is not None))
    return weights, logits.new_empty(logits.shape[:-1], dtype=torch.int64)


def _backward_fake(grad: Tensor, weights: Tensor, own: bool, temperature: float) -> tuple[Tensor, Tensor]:
    rows = weights.shape[:-1]
    return weights.new_empty(*rows, weights.shape[-1] - own), weights.new_empty(rows if own else 0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[0])
    ctx.own, ctx.temperature = inputs[1] is not None, inputs[2]
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor, Tensor | None, None]:
    dispatch.refuse_tangent(grad)
    (weights,) = ctx.saved_tensors
    grad_logits, grad_own = torch.ops.latchwork.choose_rows_backward(grad, weights, ctx.own, ctx.temperature)
    return grad_logits, grad_own if ctx.own else None, None


dispatch.register(
    "choose_rows(Tensor logits, Tensor? own, float temperature) -> (Tensor, Tensor)",
    kernel.forward,
    _fake,
    _save,
    _gradient,
)
dispatch.register(
    "choose_rows_backward(Tensor grad, Tensor weights, bool own, float temperature) -> (Tensor, Tensor)",
    kernel.backward,
    _backward_fake,
)
