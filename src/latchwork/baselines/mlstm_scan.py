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
        together = torch.cat([state.c, state.n[..., None]], -1)
        y, cn, m, _, _ = torch.ops.latchwork.mlstm(
            q, k, v, i, f, together, state.m[..., 0], scale, epsilon, torch.is_grad_enabled()
        )
        return y, MLSTMCellState(cn[..., :-1], cn[..., -1], m[..., None])
    q, k, v = (each.reshape(*each.shape[:2], heads, -1).transpose(1, 2) for each in (q, k, v))
    y, state = mlstm_scan(q, k * scale, v, i.transpose(1, 2), f.transpose(1, 2), state, epsilon)
    return y.transpose(1, 2).flatten(2), state


_Tensors = tuple[Tensor, ...]


def _given(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, cn: Tensor, m: Tensor, *options: float
) -> dict[str, Any]:
    (B, T, H), values = i.shape, dict(zip("qkvif", kernel.contiguous([q, k, v, i, f]), strict=True))
    sizes = {"batch": B, "time": T, "heads": H, "keys": cn.shape[2], "values": cn.shape[3] - 1}
    return {**sizes, "scale": options[0], "epsilon": options[1], **values, "cn0": cn.contiguous(), "m0": m.contiguous()}


def _run(*inputs: Any) -> _Tensors:
    """Every y, the last state, and the states before each chunk if they are to be kept."""
    y, cn, m, *tape = (kernel.empty(*each.shape, like=inputs[0]) for each in _run_fake(*inputs))
    kept = dict(zip(("tape_cn", "tape_m"), tape if inputs[9] else (None, None), strict=True))
    kernel.run("mlstm", kernel.Mlstm, **_given(*inputs[:9]), y=y, cn=cn, m=m, **kept)
    return y, cn, m, *tape


def _run_fake(q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, cn: Tensor, m: Tensor, *rest: Any) -> _Tensors:
    chunks, keep = -(-q.shape[1] // KERNEL_CHUNK), rest[2]
    tapes = [(*cn.shape[:2], chunks, *cn.shape[2:]), (*m.shape, chunks)] if keep else [(0,), (0,)]
    return v.new_empty(v.shape), cn.new_empty(cn.shape), m.new_empty(m.shape), *(q.new_empty(each) for each in tapes)


def _backward(grad_y: Tensor, grad_cn: Tensor | None, tape_cn: Tensor, tape_m: Tensor, *inputs: Any) -> _Tensors:
    """The gradients of q, k, v, i, f and of the first state; its m has none."""
    (grad_y,) = kernel.contiguous([grad_y])
    found = [kernel.empty(*each.shape, like=each) for each in inputs[:6]]
    grads = dict(zip(("grad_q", "grad_k", "grad_v", "grad_i", "grad_f", "grad_cn0"), found, strict=True))
    grad_cn = None if grad_cn is None else grad_cn.contiguous()
    grads["grad_y"] = grad_y
    kernel.run("mlstm_back", kernel.Mlstm, **_given(*inputs), grad_cn=grad_cn, tape_cn=tape_cn, tape_m=tape_m, **grads)
    return tuple(found)


def _backward_fake(grad_y: Tensor, grad_cn: Any, tape_cn: Tensor, tape_m: Tensor, *inputs: Any) -> _Tensors:
    return tuple(each.new_empty(each.shape) for each in inputs[:6])


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(*output[3:], *inputs[:7])
    ctx.options = inputs[7:9]
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor | None, grad_cn: Tensor | None, *_: object) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y, grad_cn)
    tape_cn, tape_m, *given = ctx.saved_tensors
    grad_y = torch.zeros_like(given[2]) if grad_y is None else grad_y
    found = torch.ops.latchwork.mlstm_backward(grad_y, grad_cn, tape_cn, tape_m, *given, *ctx.options)
    return *found, None, None, None, None


_ARGUMENTS = ", ".join(f"Tensor {name}" for name in ("q", "k", "v", "i", "f", "cn", "m"))
_ARGUMENTS += ", float scale, float epsilon"
dispatch.register(
    f"mlstm({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", _run, _run_fake, _save, _gradient
)
dispatch.register(
    f"mlstm_backward(Tensor grad_y, Tensor? grad_cn, Tensor tape_cn, Tensor tape_m, {_ARGUMENTS}) -> "
    f"({', '.join(['Tensor'] * 6)})",
    _backward,
    _backward_fake,
)
