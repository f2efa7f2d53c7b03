"""The recurrence of the mLSTM, chunk by chunk: in plain torch, and as an operation of the C++ kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch

CHUNK = 64
KERNEL_CHUNK = 24  # the same in csrc/baselines/mlstm.cpp
EPSILON = 1e-6


class MLSTMCellState(NamedTuple):
    """Memory c (B, H, d, d), normaliser n (B, H, d), and m (B, H, 1), the logarithm by which both are scaled."""

    c: Tensor
    n: Tensor
    m: Tensor


def mlstm_scan(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, state: MLSTMCellState, epsilon: float = EPSILON
) -> tuple[Tensor, MLSTMCellState]:
    """Run C_t = sigmoid(f_t) C_{t-1} + exp(i_t) k_t v_t^T and n_t, alike with k_t; return y and the last state.

    y_t = q_t C_t / max(|q_t n_t|, 1). q, k, v, y: (B, H, T, d), k scaled by d^-1/2. i, f: (B, H, T). Within a chunk
    all steps are computed at once, from one chunk to the next goes the state.
    """
    pieces = []
    for start in range(0, q.shape[2], CHUNK):
        q_now, k_now, v_now, i_now, f_now = (each[:, :, start : start + CHUNK] for each in (q, k, v, i, f))
        y, state = _chunk(q_now, k_now, v_now, i_now, f_now, state, epsilon)
        pieces.append(y)
    return torch.cat(pieces, 2), state


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, state: MLSTMCellState, epsilon: float
) -> tuple[Tensor, MLSTMCellState]:
    T = q.shape[2]
    kept = F.logsigmoid(f).cumsum(-1)  # (B, H, T): the logarithm of what is left of the state before
    past = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    weights = (kept[..., :, None] - kept[..., None, :] + i[..., None, :]).masked_fill(~past, -torch.inf)
    with torch.no_grad():  # a common scale of numerator and denominator, which y does not depend on
        m = torch.maximum(weights.amax(-1), kept + state.m)
    weights = (weights - m[..., None]).exp()  # (B, H, T, T)
    keep = (kept + state.m - m).exp()[..., None]  # (B, H, T, 1)
    scores = q @ k.transpose(-1, -2) * weights
    total = scores.sum(-1, keepdim=True) + keep * (q @ state.n[..., None])
    y = (scores @ v + keep * (q @ state.c)) / (torch.maximum(total.abs(), (-m[..., None]).exp()) + epsilon)
    written = k * weights[..., -1, :, None]
    c = keep[..., -1:, :] * state.c + written.transpose(-1, -2) @ v
    n = keep[..., -1, :] * state.n + written.sum(2)
    return y, MLSTMCellState(c, n, m[..., -1:])


def mlstm_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    i: Tensor,
    f: Tensor,
    state: MLSTMCellState,
    *,
    scale: float,
    epsilon: float = EPSILON,
) -> tuple[Tensor, MLSTMCellState]:
    """`mlstm_scan` with the heads side by side, by the C++ kernel where it can.

    q, k: (B, T, H keys). v, y: (B, T, H values). i, f: (B, T, H). k is multiplied by scale. c is then
    (B, H, keys, values).
    """
    heads = i.shape[2]
    if q.numel() and kernel.takes(q, k, v, i, f, *state):
        m = state.m[..., 0]
        y, c, n, m, _ = torch.ops.latchwork.mlstm(
            q, k, v, i, f, state.c, state.n, m, scale, epsilon, torch.is_grad_enabled()
        )
        return y, MLSTMCellState(c, n, m[..., None])
    q, k, v = (each.reshape(*each.shape[:2], heads, -1).transpose(1, 2) for each in (q, k, v))
    y, state = mlstm_scan(q, k * scale, v, i.transpose(1, 2), f.transpose(1, 2), state, epsilon)
    return y.transpose(1, 2).flatten(2), state


_Tensors = tuple[Tensor, ...]


def tape_size(c: Tensor, steps: int) -> tuple[int, ...]:
    """The shape of what the kernel keeps of a state with c (B, H, keys, values): all of it before each chunk."""
    B, H, keys, values = c.shape
    return B, H, -(-steps // KERNEL_CHUNK), keys * (values + 1) + 1


def _given(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, c: Tensor, n: Tensor, m: Tensor, *options: float
) -> dict[str, Any]:
    (B, T, H), values = i.shape, dict(zip("qkvif", kernel.contiguous([q, k, v, i, f]), strict=True))
    sizes = {"batch": B, "time": T, "heads": H, "keys": c.shape[2], "values": c.shape[3]}
    states = {"c0": c.contiguous(), "n0": n.contiguous(), "m0": m.contiguous()}
    return {**sizes, "scale": options[0], "epsilon": options[1], **values, **states}


def _run(*inputs: Any) -> _Tensors:
    """Every y, the last state, and the states before each chunk if they are to be kept."""
    y, c, n, m, tape = (kernel.empty(*each.shape, like=inputs[0]) for each in _run_fake(*inputs))
    kernel.run("mlstm", kernel.Mlstm, **_given(*inputs[:10]), y=y, c=c, n=n, m=m, tape=tape if inputs[10] else None)
    return y, c, n, m, tape


def _run_fake(*inputs: Any) -> _Tensors:
    q, v, c, keep = inputs[0], inputs[2], inputs[5], inputs[10]
    tape = q.new_empty(tape_size(c, q.shape[1]) if keep else 0)
    return v.new_empty(v.shape), *(each.new_empty(each.shape) for each in inputs[5:8]), tape


_GRADS = ("grad_q", "grad_k", "grad_v", "grad_i", "grad_f", "grad_c0", "grad_n0")


def _backward(grad_y: Tensor, grad_c: Tensor | None, grad_n: Tensor | None, tape: Tensor, *inputs: Any) -> _Tensors:
    """The gradients of q, k, v, i, f and of the first state; its m has none."""
    found = [kernel.empty(*each.shape, like=each) for each in inputs[:7]]
    ends = {"grad_c": grad_c, "grad_n": grad_n}
    values: dict[str, Any] = {name: None if each is None else each.contiguous() for name, each in ends.items()}
    (values["grad_y"],) = kernel.contiguous([grad_y])
    values.update(zip(_GRADS, found, strict=True))
    kernel.run("mlstm_back", kernel.Mlstm, **_given(*inputs), tape=tape, **values)
    return tuple(found)


def _backward_fake(grad_y: Tensor, grad_c: Any, grad_n: Any, tape: Tensor, *inputs: Any) -> _Tensors:
    return tuple(each.new_empty(each.shape) for each in inputs[:7])


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(output[4], *inputs[:8])
    ctx.options = inputs[8:10]
    ctx.mark_non_differentiable(*output[3:])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor | None, *grad_state: Tensor | None) -> tuple[Any, ...]:
    grad_c, grad_n = grad_state[:2]
    dispatch.refuse_tangent(grad_y, grad_c, grad_n)
    tape, *given = ctx.saved_tensors
    grad_y = torch.zeros_like(given[2]) if grad_y is None else grad_y
    found = torch.ops.latchwork.mlstm_backward(grad_y, grad_c, grad_n, tape, *given, *ctx.options)
    return *found, None, None, None, None


_ARGUMENTS = ", ".join(f"Tensor {name}" for name in ("q", "k", "v", "i", "f", "c", "n", "m"))
_ARGUMENTS += ", float scale, float epsilon"
dispatch.register(
    f"mlstm({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", _run, _run_fake, _save, _gradient
)
dispatch.register(
    f"mlstm_backward(Tensor grad_y, Tensor? grad_c, Tensor? grad_n, Tensor tape, {_ARGUMENTS}) -> "
    f"({', '.join(['Tensor'] * 7)})",
    _backward,
    _backward_fake,
)
