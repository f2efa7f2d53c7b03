"""LSTM and GRU, as torch has them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.baselines.baseline import Baseline
from latchwork.modules.init import small_init_init_


class Recurrent(Baseline):
    """Embedding, nn.LSTM or nn.GRU, and the embedding again as head."""

    def __init__(self, vocabulary: int, n_layers: int = 2, *, kind: type[nn.LSTM] | type[nn.GRU], width: int) -> None:
        super().__init__(vocabulary, n_layers)
        self.embedding = nn.Embedding(vocabulary, width)
        small_init_init_(self.embedding.weight, width)
        self.layers = kind(width, width, n_layers, batch_first=True)

    def initial_state(self, batch_size: int) -> Any:
        """Zeros, (n_layers, B, width): as torch has it, h for a GRU and (h, c) for an LSTM."""
        h = self.embedding.weight.new_zeros(self.n_layers, batch_size, self.layers.hidden_size)
        return (h, h.clone()) if isinstance(self.layers, nn.LSTM) else h

    def _run(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.layers(self._embed(self.embedding, tokens), state)
        return F.linear(y, self.embedding.weight), state
