"""A depthwise convolution over time that goes on from the inputs before."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def causal_conv(conv: nn.Conv1d, u: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """y_t = bias + sum over k of weight_k * u_{t - K + 1 + k}, and the last K - 1 inputs.

    u: (B, T, D). before: (B, K - 1, D), the inputs before u. conv: a module of kernel K whose weight (D, 1, K) and
    bias are used. A sum of K products is as fast as the module itself and leaves time where it is, the second
    dimension, as the recurrences like it.
    """
    T, K = u.shape[1], conv.kernel_size[0]
    padded = torch.cat([before, u], 1)
    y = padded[:, :T] * conv.weight[:, 0, 0]
    for k in range(1, K):
        y = torch.addcmul(y, padded[:, k : k + T], conv.weight[:, 0, k])
    if conv.bias is not None:
        y = y + conv.bias
    return y, padded[:, T:]
