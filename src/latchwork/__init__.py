"""latchwork: MinMax Recurrent Neural Cascades, exact on every path."""

from latchwork.models import MinMaxRNC, MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.modules import Latch, LatchState, MinMaxLayer, MinMaxNeuron, State
from latchwork.ops import minmax_scan, minmax_step, use_backend

__all__ = [
    "Latch",
    "LatchState",
    "MinMaxLayer",
    "MinMaxNeuron",
    "MinMaxRNC",
    "MinMaxRNCConfig",
    "MinMaxRNCLMConfig",
    "MinMaxRNC_LM",
    "State",
    "minmax_scan",
    "minmax_step",
    "use_backend",
]
__version__ = "0.1.0"
