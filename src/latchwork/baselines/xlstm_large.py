"""xLSTM-Large: the package xlstm's model on the kernels of mlstm_kernels that need no GPU."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from latchwork.baselines.baseline import Baseline
from latchwork.baselines.mlstm_scan import MLSTMCellState
from latchwork.baselines.packages import load


class XLSTMLarge(Baseline):
    """xLSTMLarge with 4 heads and else its defaults, in float32.

    The kernels run in the mode that the package calls inference, since its mode for training takes multiples of 64
    steps only; both compute the same, and the gradient is torch's. The package's own forward changes the state that
    it is given; ours does not.
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
        u, after = self._embed(self.network.embedding, tokens), []
        for block, before in zip(backbone.blocks, state, strict=True):
            u, now = block(u, before)
            after.append(MLSTMCellState(*now))
        logits = self.network.lm_head(backbone.out_norm(u))
        return self._soft_cap(logits, self.network.config.output_logit_soft_cap), tuple(after)
