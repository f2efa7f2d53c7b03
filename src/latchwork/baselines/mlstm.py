"""mLSTM: the weights of the package xlstm, run so that a state goes in and out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.baselines.causal_conv import causal_conv
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.mlstm_scan import MLSTMCellState, mlstm_heads
from latchwork.baselines.packages import load
from latchwork.baselines.quads import blockwise
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
        cell, heads = layer.mlstm_cell, layer.config.num_heads
        inner, gate = mapped.chunk(2, -1)
        mixed, conv = causal_conv(layer.conv1d.conv, inner, state.conv, silu=True)
        q, k = blockwise(mixed, layer.q_proj.weight), blockwise(mixed, layer.k_proj.weight)
        v = blockwise(inner, layer.v_proj.weight)
        # The gates are linear in q, k and v, which are linear in mixed and inner: both maps in one.
        of_gates = torch.cat([cell.igate.weight, cell.fgate.weight]).chunk(3, -1)
        of_q, of_k, of_v = (
            torch.einsum("gho,hod->ghd", each.reshape(len(each), len(part.weight), -1), part.weight).flatten(1)
            for each, part in zip(of_gates, (layer.q_proj, layer.k_proj, layer.v_proj), strict=True)
        )
        gates = linear(mixed, of_q + of_k, torch.cat([cell.igate.bias, cell.fgate.bias]), residual=linear(inner, of_v))
        i, f = gates.chunk(2, -1)
        y, after = mlstm_heads(q, k, v, i, f, state.cell, scale=(q.shape[-1] // heads) ** -0.5)
        u = linear(
            y,
            layer.proj_down.weight,
            layer.proj_down.bias,
            norm=Norm(cell.outnorm.weight_proxy, cell.outnorm.eps, heads),
            skip=(layer.learnable_skip, mixed),
            gate=gate,
            residual=u,
            dropout=drop(layer.dropout),
        )
        return u, MLSTMState(conv, after)
