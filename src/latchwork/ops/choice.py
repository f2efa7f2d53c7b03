"""A hard choice for each row of logits, and the soft weights that are given a gradient in its place: one op.

On a CPU torch's softmax of a row of five numbers costs many times what the numbers do; csrc/choice.h does the softmax
and the argmax of several rows at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops import cpu, dispatch, transforms
from latchwork.ops.abi import Choice
from latchwork.ops.cpu import empty
from latchwork.ops.scan import DTYPES, check_dense


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
    backend = dispatch.asked_for(backend)
    if backend not in dispatch.NAMES:
        raise ValueError(f"backend {backend!r} is unknown; there are {', '.join(dispatch.NAMES)}")
    reason = cpu.MISSING if logits.device.type == "cpu" else f"logits is on {logits.device}, not on the CPU"
    reason = transforms.unfit(logits, own) or reason
    if backend == "cpu" and reason:
        raise ValueError(f"backend 'cpu' cannot run: {reason}")
    if backend not in ("auto", "cpu") or reason:
        return plain_choice(logits, own, temperature)
    weights, choice = torch.ops.latchwork.choose_rows(logits, own, temperature)
    return weights, choice


def plain_choice(logits: Tensor, own: Tensor | None, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """The definition, in torch operations that autograd differentiates."""
    whole = logits if own is None else torch.cat([logits, own.unsqueeze(-1)], -1)
    wide = whole.to(torch.promote_types(whole.dtype, torch.float32))
    return (wide / temperature).softmax(-1).to(whole.dtype), whole.detach().argmax(-1)


@torch.library.custom_op("latchwork::choose_rows", mutates_args=())
def _choose(logits: Tensor, own: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    options = logits.shape[-1] + (own is not None)
    weights = empty(torch.Size((*logits.shape[:-1], options)), logits)
    choice = logits.new_empty(logits.shape[:-1], dtype=torch.int64)
    if weights.numel():
        _call("latchwork_choose", weights, temperature, logits=logits, own=own, choice=choice)
    return weights, choice


@_choose.register_fake
def _(logits: Tensor, own: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    weights = logits.new_empty(*logits.shape[:-1], logits.shape[-1] + (own is not None))
    return weights, logits.new_empty(logits.shape[:-1], dtype=torch.int64)


@torch.library.custom_op("latchwork::choose_rows_backward", mutates_args=())
def _choose_backward(grad: Tensor, weights: Tensor, own: bool, temperature: float) -> tuple[Tensor, Tensor]:
    """The gradients of logits and of own, which is empty where there is none."""
    grad_logits = empty(torch.Size((*weights.shape[:-1], weights.shape[-1] - own)), weights)
    grad_own = weights.new_empty(weights.shape[:-1] if own else 0)
    if weights.numel():
        given = {"grad_logits": grad_logits, "grad_own": grad_own if own else None, "own": grad_own if own else None}
        _call("latchwork_choose_back", weights, temperature, grad=grad, **given)
    return grad_logits, grad_own


@_choose_backward.register_fake
def _(grad: Tensor, weights: Tensor, own: bool, temperature: float) -> tuple[Tensor, Tensor]:
    rows = weights.shape[:-1]
    return weights.new_empty(*rows, weights.shape[-1] - own), weights.new_empty(rows if own else 0)


def _call(name: str, weights: Tensor, temperature: float, **tensors: Tensor | None) -> None:
    """Run the kernel on tensors (..., N, K) and (..., N), whose units and places are made the rows of one token."""
    leading = weights.shape[:-1]
    tokens, rows = leading[:-2].numel(), leading[-2:].numel()
    flat = {}  # kept until the kernel has run
    for each, tensor in {"weights": weights, **tensors}.items():
        shape = (tokens, rows, *tensor.shape[len(leading) :]) if tensor is not None else ()
        view = None if tensor is None else tensor.reshape(shape)
        flat[each] = view if view is None or view[0].is_contiguous() else view.contiguous()
    cpu.call(
        name,
        Choice(
            dtype=cpu.DTYPES[weights.dtype],
            tokens=tokens,
            rows=rows,
            options=weights.shape[-1],
            threads=torch.get_num_threads(),
            temperature=temperature,
            **{each: cpu.rows(tensor, time=False) for each, tensor in flat.items()},
        ),
    )


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[0])
    ctx.own, ctx.temperature = inputs[1] is not None, inputs[2]  # type: ignore[attr-defined]
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, _: object) -> tuple[Tensor, Tensor | None, None]:
    if transforms.has_tangent(grad):
        _no_second_gradient(ctx)
    (weights,) = ctx.saved_tensors  # type: ignore[attr-defined]
    backward = torch.ops.latchwork.choose_rows_backward
    grad_logits, grad_own = backward(grad, weights, ctx.own, ctx.temperature)  # type: ignore[attr-defined]
    return grad_logits, grad_own if ctx.own else None, None  # type: ignore[attr-defined]


def _no_second_gradient(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> None:
    raise NotImplementedError('choose_rows has no second derivative in the kernel; use backend="torch"')


_choose.register_autograd(_gradient, setup_context=_save)
_choose_backward.register_autograd(_no_second_gradient)
