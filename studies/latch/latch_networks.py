"""The networks of the study: a recurrent layer, the same readout, the same number of parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from latchwork import Latch
from latchwork.modules.clock import Clock
from latchwork.modules.latch import PERIODS
from latchwork.modules.sequences import at_step, inside

LAYERS = 2


class Reader(nn.Module):
    """A recurrent layer, then a linear map of its output's mean and of its last output."""

    def __init__(self, layer: nn.Module, width: int, outputs: int, clock: bool) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(2 * width, outputs)
        self.clock = Clock(PERIODS) if clock else None

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """inputs (B, T, F) and lengths (B,) to (B, outputs)."""
        B, T = inputs.shape[:2]
        if self.clock is not None:
            inputs = torch.cat((inputs, self.clock(torch.arange(T)).expand(B, -1, -1)), -1)
        if isinstance(self.layer, Latch):
            y, _ = self.layer(inputs, lengths=lengths)
        elif int(lengths.min()) == T:
            y, _ = self.layer(inputs)
        else:
            packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
            y, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=T)
        mean = (y * inside(lengths, T).unsqueeze(-1)).sum(1) / lengths.unsqueeze(1)
        return self.head(torch.cat((mean, at_step(y, lengths - 1)), -1))


LONGER = (*PERIODS, 256, 512, 1024)
CLOCK = 2 * len(PERIODS)
LAYER: dict[str, Callable[[int, int], nn.Module]] = {
    "latch": lambda features, width: Latch(features, width, LAYERS, batch_first=True),
    "lstm": lambda features, width: nn.LSTM(features, width, LAYERS, batch_first=True),
    "lstm+clock": lambda features, width: nn.LSTM(features + CLOCK, width, LAYERS, batch_first=True),
    "gru": lambda features, width: nn.GRU(features, width, LAYERS, batch_first=True),
    "gru+clock": lambda features, width: nn.GRU(features + CLOCK, width, LAYERS, batch_first=True),
    "latch-1024": lambda features, width: Latch(features, width, LAYERS, batch_first=True, periods=LONGER),
}


def make(name: str, features: int, outputs: int, parameters: int) -> Reader:
    """The widest network with at most so many parameters."""

    def build(width: int) -> Reader:
        return Reader(LAYER[name](features, width), width, outputs, name.endswith("+clock"))

    width = 2
    with torch.device("meta"):
        while count(build(width + 1)) <= parameters:
            width += 1
    return build(width)


def count(network: nn.Module) -> int:
    """Trainable parameters."""
    return sum(each.numel() for each in network.parameters())
