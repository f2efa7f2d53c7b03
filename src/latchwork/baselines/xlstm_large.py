"""xLSTM-Large: the weights of the package xlstm, run so that a state goes in and out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.baselines.baseline import Baseline
from latchwork.baselines.feedforward import gated_feedforward
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.mlstm_scan import MLSTMCellState, mlstm_heads
from latchwork.baselines.packages import load


class XLSTMLarge(Baseline):
    """xLSTMLarge with 4 heads and else its defaults, in float32.

    The package's own forward gives the same logits; in the mode that it calls training it takes multiples of 64 steps
    only.
    """

    def __init__(self, vocabulary: int, n_layers: int = 2, *, width: int) -> None:
        super().__init__(vocabulary, n_layers)
        package = load("xlstm.xlstm_large.model")
        config = package.xLSTMLargeConfig(
            vocab_size=vocabulary,
            num_blocks=n_layers,
            embedding_dim=width,
            num_heads=4,
            chunkwise_kernel="chunkwise--native_autograd",
            sequence_kernel="native_sequence__native",
            step_kernel="native",
            mode="inference",
            return_last_states=True,
            autocast_kernel_dtype="float32",
        )
        self.network: Any = package.xLSTMLarge(config)
        self._soft_cap = package.soft_cap

    def initial_state(self, batch_size: int) -> tuple[MLSTMCellState, ...]:
        """Zeros: of each layer c (B, 4, width / 8, width / 4), n (B, 4, width / 8), m (B, 4, 1)."""
        config, weight = self.network.config, self.network.embedding.weight
        heads = config.num_heads
        keys, values = (int(config.embedding_dim * x) // heads for x in (config.qk_dim_factor, config.v_dim_factor))
        shapes = [(keys, values), (keys,), (1,)]
        return tuple(
            MLSTMCellState(*(weight.new_zeros(batch_size, heads, *shape) for shape in shapes))
            for _ in range(self.n_layers)
        )

    def _run(self, tokens: Tensor, state: tuple[MLSTMCellState, ...]) -> tuple[Tensor, tuple[MLSTMCellState, ...]]:
        backbone = self.network.backbone
        first, after = backbone.blocks[0], []
        u, mapped = self._embed_and_map(self.network.embedding, tokens, lambda each: _project(first, each))
        for block, before in zip(backbone.blocks, state, strict=True):
            mapped = mapped if block is first else _project(block, u)
            u, now = self._mix(block.mlstm_layer, u, mapped, before)
            u = _feedforward(block, u)
            after.append(now)
        logits = linear(u, self.network.lm_head.weight, norm=_norm(backbone.out_norm))
        return self._soft_cap(logits, self.network.config.output_logit_soft_cap), tuple(after)

    def _mix(self, layer: Any, u: Tensor, mapped: Tensor, state: MLSTMCellState) -> tuple[Tensor, MLSTMCellState]:
        """u and what the package's mLSTMLayer computes after its projections, going on from a state."""
        heads, norm, config = layer.config.num_heads, layer.multihead_norm, layer.mlstm_backend.config
        keys, values = layer.qk_dim, layer.v_dim
        q, k, v, o, gates = torch.split(mapped, [keys, keys, values, values, 2 * heads], -1)
        i, f = self._soft_cap(gates, cap_value=layer.config.gate_soft_cap).chunk(2, -1)
        q = q * (keys // heads) ** -0.5
        y, now = mlstm_heads(q, k, v, i, f, state, scale=1.0, epsilon=config.eps)
        out, norm = layer.out_proj, Norm(norm.weight, norm.eps, heads)
        return linear(y, out.weight, out.bias, norm=norm, gate=o, activation="sigmoid", residual=u), now


def _norm(norm: Any) -> Norm:
    """The package's RMSNorm."""
    return Norm(norm.weight, norm.eps, centred=False)


def _project(block: Any, u: Tensor) -> Tensor:
    """q, k, v, and what drives the output gate, i and f, side by side: one matrix product."""
    layer = block.mlstm_layer
    maps = (layer.q, layer.k, layer.v, layer.ogate_preact, layer.igate_preact, layer.fgate_preact)
    return linear(u, *_side_by_side(u, *maps), norm=_norm(block.norm_mlstm))


def _feedforward(block: Any, u: Tensor) -> Tensor:
    """u and what the package's FeedForward computes."""
    ffn, down = block.ffn, block.ffn.proj_down
    up = _side_by_side(u, ffn.proj_up_gate, ffn.proj_up)
    return gated_feedforward(u, _norm(block.norm_ffn), up, (down.weight, down.bias), activation="silu")


def _side_by_side(u: Tensor, *maps: Any) -> tuple[Tensor, Tensor]:
    """The weight and the bias of several linear maps as one."""
    biases = [u.new_zeros(each.out_features) if each.bias is None else each.bias for each in maps]
    return torch.cat([each.weight for each in maps]), torch.cat(biases)
