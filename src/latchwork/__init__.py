"""latchwork: MinMax Recurrent Neural Cascades, exact on every path."""

from latchwork.load import load_model
from latchwork.models import MinMaxRNC, MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.modules import MinMaxLayer, MinMaxNeuron, State
from latchwork.ops import minmax_scan, minmax_step, use_backend

__all__ = [
    "MinMaxLayer",
    "MinMaxNeuron",
    "MinMaxRNC",
    "MinMaxRNCConfig",
    "MinMaxRNCLMConfig",
    "MinMaxRNC_LM",
    "State",
    "load_model",
    "minmax_scan",
    "minmax_step",
    "use_backend",
]
__version__ = "0.1.0"
