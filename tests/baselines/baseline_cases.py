"""Baselines too small to be of use, of every kind."""

import pytest
import torch
from torch import nn

from latchwork.baselines.mamba import Mamba
from latchwork.baselines.mlstm import MLSTM
from latchwork.baselines.recurrent import Recurrent
from latchwork.baselines.slstm import SLSTM
from latchwork.baselines.transformer import Transformer
from latchwork.baselines.xlstm_large import XLSTMLarge

VOCABULARY = 7
KINDS = {
    "mamba": lambda: Mamba(VOCABULARY, width=6),
    "slstm": lambda: SLSTM(VOCABULARY, width=8),
    "mlstm": lambda: MLSTM(VOCABULARY, width=8),
    "xlstm-large": lambda: XLSTMLarge(VOCABULARY, width=16),
    "lstm": lambda: Recurrent(VOCABULARY, kind=nn.LSTM, width=6),
    "gru": lambda: Recurrent(VOCABULARY, kind=nn.GRU, width=6),
    "transformer": lambda: Transformer(VOCABULARY, width=8),
    "transformer with learned positions": lambda: Transformer(VOCABULARY, width=8, positions=200),
    "transformer with a window": lambda: Transformer(VOCABULARY, width=8, window=5),
}


def needs(kind):
    """Skip where the package that a kind is made of is not there: xlstm wants Python 3.11."""
    if kind in ("slstm", "mlstm", "xlstm-large"):
        pytest.importorskip("xlstm")
        pytest.importorskip("mlstm_kernels")


def draw(kind):
    """A model with weights that are none of them zero, so that every one of them counts. xlstm-large is float32."""
    needs(kind)
    model = KINDS[kind]()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn_like(each))
    return model if kind == "xlstm-large" else model.double()


def tolerance(kind):
    return 2e-5 if kind == "xlstm-large" else 1e-6 if kind == "mlstm" else 1e-9


def tokens(B, T):
    return torch.randint(VOCABULARY, (B, T))
