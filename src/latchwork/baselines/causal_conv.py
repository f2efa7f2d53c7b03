"""silu of a depthwise convolution over time that goes on from the inputs before; the C++ mixers have their own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_TAPS = 8  # that the C++ kernel takes


def causal_conv(u: Tensor, before: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y_t = silu(bias + sum over k of weight_k * u_{t - K + 1 + k}).

    u: (B, T, D). before: (B, K - 1, D), the inputs before u. weight: (D, 1, K), as of nn.Conv1d. Time stays where it
    is, the second dimension, as the recurrences like it.
    """
    T = u.shape[1]
    padded = torch.cat([before, u], 1)
    y = padded[:, :T] * weight[:, 0, 0]
    for k in range(1, weight.shape[2]):
        y = torch.addcmul(y, padded[:, k : k + T], weight[:, 0, k])
    return F.silu(y if bias is None else y + bias)


def last_inputs(u: Tensor, before: Tensor) -> Tensor:
    """What the convolution of the next inputs has to know: as many of the last of before and u as before has."""
    past = before.shape[1]
    return u[:, -past:] if u.shape[1] >= past else torch.cat([before, u], 1)[:, -past:]
