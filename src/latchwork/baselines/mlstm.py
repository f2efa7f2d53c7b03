"""mLSTM: the weights of the package xlstm, run so that a state goes in and out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.baselines.causal_conv import last_inputs
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.mlstm_mixer import MixerWeights, mlstm_mixer
from latchwork.baselines.mlstm_scan import MLSTMCellState
from latchwork.baselines.packages import load
from latchwork.baselines.xlstm_stack import XLSTMStack, drop


class MLSTMState(NamedTuple):
    """Of one layer: conv (B, 3, inner width), the last inputs of the convolution; and the cell."""

    conv: Tensor
    cell: MLSTMCellState


class MLSTM(XLSTMStack):
    """xLSTM of mLSTM blocks only: 4 heads, projections in blocks of 4, a convolution of 4, a projection factor of 2.

    The package's own forward gives the same logits, in time and memory quadratic in T; ours are linear.
    """

    def __init__(self, vocabulary: int, n_layers: int = 2, *, width: int, dropout: float = 0.1) -> None:
        xlstm = load("xlstm")
        layer = xlstm.mLSTMLayerConfig(num_heads=4, qkv_proj_blocksize=4, conv1d_kernel_size=4, proj_factor=2.0)
        super().__init__(vocabulary, n_layers, width, dropout, mlstm_block=xlstm.mLSTMBlockConfig(mlstm=layer))
        for block in self.network.xlstm_block_stack.blocks:
            block.xlstm.mlstm_cell.causal_mask = None  # the package then makes one of the length it needs

    def initial_state(self, batch_size: int) -> tuple[MLSTMState, ...]:
        """Zeros."""
        states = []
        for block in self.network.xlstm_block_stack.blocks:
            layer = block.xlstm
            heads, inner = layer.config.num_heads, layer.config._inner_embedding_dim
            d, weight = inner // heads, layer.conv1d.conv.weight
            cell = [weight.new_zeros(batch_size, heads, *shape) for shape in [(d, d), (d,), (1,)]]
            states.append(MLSTMState(weight.new_zeros(batch_size, layer.conv1d.pad, inner), MLSTMCellState(*cell)))
        return tuple(states)

    @staticmethod
    def _map(layer: Any, u: Tensor, norm: Norm) -> Tensor:
        return linear(u, layer.proj_up.weight, layer.proj_up.bias, norm=norm)

    @staticmethod
    def _mix(layer: Any, u: Tensor, mapped: Tensor, state: MLSTMState) -> tuple[Tensor, MLSTMState]:
        cell, conv = layer.mlstm_cell, layer.conv1d.conv
        weights = MixerWeights(
            conv.weight,
            conv.bias,
            *(layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight),
            torch.cat([cell.igate.weight, cell.fgate.weight]),
            torch.cat([cell.igate.bias, cell.fgate.bias]),
            cell.outnorm.weight_proxy,
            layer.learnable_skip,
        )
        y, after = mlstm_mixer(mapped, state.conv, weights, state.cell, cell.outnorm.eps)
        u = linear(y, layer.proj_down.weight, layer.proj_down.bias, residual=u, dropout=drop(layer.dropout))
        return u, MLSTMState(last_inputs(mapped.chunk(2, -1)[0], state.conv), after)
