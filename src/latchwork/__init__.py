"""latchwork: MinMax Recurrent Neural Cascades, exact on every path.

The public names are imported when they are first asked for, so that `latchwork.machines` works without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    "minmax_scan",
    "minmax_step",
    "use_backend",
]
__version__ = "0.1.0"
_FOLDERS = ("ops", "modules", "models")  # where the public names are, the first to be imported first


def __getattr__(name: str) -> object:
    if name in _FOLDERS:
        return import_module(f"latchwork.{name}")
    for folder in _FOLDERS if name in __all__ else ():
        module = import_module(f"latchwork.{folder}")
        if name in module.__all__:
            return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'latchwork' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_FOLDERS})
