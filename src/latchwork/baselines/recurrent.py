"""LSTM and GRU with torch's weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.baselines import kernel
from latchwork.baselines.baseline import Baseline
from latchwork.baselines.gru_scan import gru_scan
from latchwork.baselines.linear import linear
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
        if isinstance(self.layers, nn.LSTM) or not kernel.takes(self.embedding.weight, state):
            y, state = self.layers(self._embed(self.embedding, tokens), state)
            return linear(y, self.embedding.weight), state
        after: list[Tensor] = []
        for weight, recurrent, bias, recurrent_bias, before in zip(
            *zip(*self.layers.all_weights, strict=True), state, strict=True
        ):
            drive = partial(linear, weight=weight, bias=bias)
            mapped = drive(y) if after else self._embed_and_map(self.embedding, tokens, drive)[1]
            y = gru_scan(mapped, recurrent, recurrent_bias, before)
            after.append(y[:, -1])
        return linear(y, self.embedding.weight), torch.stack(after)
