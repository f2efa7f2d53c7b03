"""What sLSTM and mLSTM share: the package xlstm's language model of blocks of one kind."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from latchwork.baselines.baseline import Baseline
from latchwork.baselines.linear import linear
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
            self.network.token_embedding, tokens, lambda each: self._map(first.xlstm, first.xlstm_norm(each))
        )
        for block, before in zip(stack.blocks, state, strict=True):
            mapped = mapped if block is first else self._map(block.xlstm, block.xlstm_norm(u))
            y, now = self._mix(block.xlstm, mapped, before)
            u = u + y
            if block.ffn is not None:
                u = u + _feedforward(block.ffn, block.ffn_norm(u))
            after.append(now)
        return linear(stack.post_blocks_norm(u), self.network.lm_head.weight), tuple(after)

    @staticmethod
    @abstractmethod
    def _map(layer: Any, u: Tensor) -> Tensor:
        """What the package's layer does first, with each step (..., width) by itself."""

    @staticmethod
    @abstractmethod
    def _mix(layer: Any, mapped: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What it computes after that, (B, T, width), going on from a state."""


def _feedforward(ffn: Any, u: Tensor) -> Tensor:
    """What the package's GatedFeedForward computes."""
    gate, value = linear(u, ffn.proj_up.weight, ffn.proj_up.bias).chunk(2, -1)
    y: Tensor = ffn.dropout(linear(ffn.act_fn(gate) * value, ffn.proj_down.weight, ffn.proj_down.bias))
    return y
