"""The recurrence of the mLSTM, chunk by chunk in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64
EPSILON = 1e-6


class MLSTMCellState(NamedTuple):
    """Memory c (B, H, d, d), normaliser n (B, H, d), and m (B, H, 1), the logarithm by which both are scaled."""

    c: Tensor
    n: Tensor
    m: Tensor


def mlstm_scan(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, state: MLSTMCellState
) -> tuple[Tensor, MLSTMCellState]:
    """Run C_t = sigmoid(f_t) C_{t-1} + exp(i_t) k_t v_t^T and n_t, alike with k_t; return y and the last state.

    y_t = q_t C_t / max(|q_t n_t|, 1). q, k, v, y: (B, H, T, d), k scaled by d^-1/2. i, f: (B, H, T). Within a chunk
    all steps are computed at once, from one chunk to the next goes the state.
    """
    pieces = []
    for start in range(0, q.shape[2], CHUNK):
        q_now, k_now, v_now, i_now, f_now = (each[:, :, start : start + CHUNK] for each in (q, k, v, i, f))
        y, state = _chunk(q_now, k_now, v_now, i_now, f_now, state)
        pieces.append(y)
    return torch.cat(pieces, 2), state


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, state: MLSTMCellState
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
    y = (scores @ v + keep * (q @ state.c)) / (torch.maximum(total.abs(), (-m[..., None]).exp()) + EPSILON)
    written = k * weights[..., -1, :, None]
    c = keep[..., -1:, :] * state.c + written.transpose(-1, -2) @ v
    n = keep[..., -1, :] * state.n + written.sum(2)
    return y, MLSTMCellState(c, n, m[..., -1:])
