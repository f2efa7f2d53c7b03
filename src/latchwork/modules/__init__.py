"""The parts of a MinMax cascade."""

from latchwork.modules.cells import (
    Cell,
    MatrixCell,
    ScalarCell,
    SelectionCell,
    TransformationCell,
    set_temperature,
)
from latchwork.modules.conv import BasicConv, GatedConv
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.init import small_init_init_, wang_init_
from latchwork.modules.latch import Latch
from latchwork.modules.latch_state import LatchState
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.state import State

__all__ = [
    "BasicConv",
    "Cell",
    "FeedForward",
    "GatedConv",
    "GatedFeedForward",
    "Latch",
    "LatchState",
    "MatrixCell",
    "MinMaxLayer",
    "MinMaxNeuron",
    "ScalarCell",
    "SelectionCell",
    "State",
    "TransformationCell",
    "set_temperature",
    "small_init_init_",
    "wang_init_",
]
