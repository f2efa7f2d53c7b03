"""What sLSTM and mLSTM share: the package xlstm's language model of blocks of one kind."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from latchwork.baselines.baseline import Baseline
from latchwork.baselines.feedforward import gated_feedforward
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.packages import load


class XLSTMStack(Baseline):
    """xLSTMLMModel of the package, its weights run so that a state goes in and out.

    dropout: of the output of each sLSTM or mLSTM layer while training, the package's setting for the whole stack.
    """

    def __init__(self, vocabulary: int, n_layers: int, width: int, dropout: float, **blocks: Any) -> None:
        super().__init__(vocabulary, n_layers)
        xlstm = load("xlstm")
        config = xlstm.xLSTMLMModelConfig(
            vocab_size=vocabulary,
            num_blocks=n_layers,
            embedding_dim=width,
            dropout=dropout,
            context_length=1,  # sizes a mask only, and we have our own
            **blocks,
        )
        self.network: Any = xlstm.xLSTMLMModel(config)
        self.network.reset_parameters()

    def _run(self, tokens: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        stack = self.network.xlstm_block_stack
        first, after = stack.blocks[0], []
        u, mapped = self._embed_and_map(
            self.network.token_embedding, tokens, lambda each: self._map(first.xlstm, each, _norm(first.xlstm_norm))
        )
        for block, before in zip(stack.blocks, state, strict=True):
            mapped = mapped if block is first else self._map(block.xlstm, u, _norm(block.xlstm_norm))
            u, now = self._mix(block.xlstm, u, mapped, before)
            if block.ffn is not None:
                u = _feedforward(block, u)
            after.append(now)
        return linear(u, self.network.lm_head.weight, norm=_norm(stack.post_blocks_norm)), tuple(after)

    @staticmethod
    @abstractmethod
    def _map(layer: Any, u: Tensor, norm: Norm) -> Tensor:
        """What the package's block does first, with each step (..., width) by itself."""

    @staticmethod
    @abstractmethod
    def _mix(layer: Any, u: Tensor, mapped: Tensor, state: Any) -> tuple[Tensor, Any]:
        """u, and added to it what the layer computes after that, (B, T, width), going on from a state."""


def _norm(norm: Any) -> Norm:
    """The package's LayerNorm, without a bias."""
    return Norm(norm.weight_proxy, norm.eps)


def drop(dropout: Any) -> float:
    """The share that a Dropout of the package drops now."""
    return float(dropout.p) if dropout.training else 0.0


def _feedforward(block: Any, u: Tensor) -> Tensor:
    """u and what the package's GatedFeedForward computes."""
    up, down, dropout = block.ffn.proj_up, block.ffn.proj_down, drop(block.ffn.dropout)
    maps = (up.weight, up.bias), (down.weight, down.bias)
    return gated_feedforward(u, _norm(block.ffn_norm), *maps, activation="gelu", dropout=dropout)
