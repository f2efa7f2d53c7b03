"""The baselines by name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from functools import partial

from torch import nn

from latchwork.baselines.baseline import Baseline
from latchwork.baselines.mamba import Mamba
from latchwork.baselines.mlstm import MLSTM
from latchwork.baselines.recurrent import Recurrent
from latchwork.baselines.slstm import SLSTM
from latchwork.baselines.transformer import Transformer
from latchwork.baselines.xlstm_large import XLSTMLarge

# Name -> how to make it of a vocabulary and a number of layers. The widths of the first seven are the paper's, those
# of the last three give about as many parameters. The window is as long as the longest validation sequence.
BASELINES: dict[str, Callable[[int, int], Baseline]] = {
    "mamba-s": partial(Mamba, width=95),
    "mamba-m": partial(Mamba, width=100),
    "slstm-s": partial(SLSTM, width=96),
    "slstm-m": partial(SLSTM, width=100),
    "mlstm-s": partial(MLSTM, width=96),
    "mlstm-m": partial(MLSTM, width=97),
    "xlstm-l-s": partial(XLSTMLarge, width=72),
    "lstm-s": partial(Recurrent, kind=nn.LSTM, width=89),
    "gru-s": partial(Recurrent, kind=nn.GRU, width=103),
    "transformer-s": partial(Transformer, width=72, window=2048),
}


def make_baseline(name: str, vocabulary: int, n_layers: int = 2) -> Baseline:
    """A model that the paper compares with, or one like them, with weights drawn anew.

    >>> make_baseline("gru-s", 20).parameter_count()
    130604
    """
    if name not in BASELINES:
        nearest = sorted(BASELINES, key=lambda each: -SequenceMatcher(None, str(name), each).ratio())
        raise ValueError(f"name {name!r} is unknown; there are {', '.join(nearest)}")
    return BASELINES[name](vocabulary, n_layers)
