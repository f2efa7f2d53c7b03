"""sLSTM: the weights of the package xlstm, run so that a state goes in and out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.baselines.causal_conv import last_inputs
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.packages import load
from latchwork.baselines.slstm_scan import HeadWeights, SLSTMCellState, slstm_heads
from latchwork.baselines.xlstm_stack import XLSTMStack, drop


class SLSTMState(NamedTuple):
    """Of one layer: conv (B, 3, width), the last inputs of the convolution; and the cell."""

    conv: Tensor
    cell: SLSTMCellState


class SLSTM(XLSTMStack):
    """xLSTM of sLSTM blocks only: 4 heads, a convolution of 4, a gated feed-forward network of 1.3 with GELU.

    The package's own loop ("vanilla") gives the same logits; its backward pass is quadratic in T, ours is linear.
    """

    def __init__(self, vocabulary: int, n_layers: int = 2, *, width: int, dropout: float = 0.1) -> None:
        xlstm = load("xlstm")
        layer = xlstm.sLSTMLayerConfig(backend="vanilla", num_heads=4, conv1d_kernel_size=4, dtype="float32")
        feedforward = xlstm.FeedForwardConfig(proj_factor=1.3, act_fn="gelu")
        block = xlstm.sLSTMBlockConfig(slstm=layer, feedforward=feedforward)
        super().__init__(vocabulary, n_layers, width, dropout, slstm_block=block)

    def initial_state(self, batch_size: int) -> tuple[SLSTMState, ...]:
        """Zeros."""
        states = []
        for block in self.network.xlstm_block_stack.blocks:
            layer = block.xlstm
            heads, width = layer.config.num_heads, layer.config.embedding_dim
            weight = layer.conv1d.conv.weight
            cell = [weight.new_zeros(heads, batch_size, width // heads) for _ in range(4)]
            states.append(SLSTMState(weight.new_zeros(batch_size, layer.conv1d.pad, width), SLSTMCellState(*cell)))
        return tuple(states)

    @staticmethod
    def _map(layer: Any, u: Tensor, norm: Norm) -> Tensor:
        return linear(u, norm=norm)

    @staticmethod
    def _mix(layer: Any, u: Tensor, mapped: Tensor, state: SLSTMState) -> tuple[Tensor, SLSTMState]:
        heads, conv = layer.config.num_heads, layer.conv1d.conv
        # As the package has it: its fgate drives i and its igate drives f.
        gates = (layer.fgate, layer.igate, layer.zgate, layer.ogate)
        maps = torch.cat([each.weight.transpose(1, 2) for each in gates], -1)
        bias = layer.slstm_cell._bias_.view(4, heads, -1).transpose(0, 1)
        recurrent = layer.slstm_cell._recurrent_kernel_.transpose(1, 2)
        weights = HeadWeights(conv.weight, conv.bias, maps, bias, recurrent)
        y, cell = slstm_heads(mapped, state.conv, weights, state.cell)
        norm = Norm(layer.group_norm.weight_proxy, layer.group_norm.eps, heads)
        u = linear(y, norm=norm, residual=u, dropout=drop(layer.dropout), drops_before=True)
        return u, SLSTMState(last_inputs(mapped, state.conv), cell)
