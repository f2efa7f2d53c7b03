"""latchwork: MinMax Recurrent Neural Cascades, exact on every path.

The public names are imported when they are first asked for, so that `latchwork.machines` works without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latchwork.learning import learn
    from latchwork.load import load_model
    from latchwork.models import MinMaxRNC, MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
    from latchwork.modules import Latch, MinMaxLayer, MinMaxNeuron, State
    from latchwork.ops import minmax_scan, minmax_step, use_backend

__all__ = [
    "Latch",
    "MinMaxLayer",
    "MinMaxNeuron",
    "MinMaxRNC",
    "MinMaxRNCConfig",
    "MinMaxRNCLMConfig",
    "MinMaxRNC_LM",
    "State",
    "learn",
    "load_model",
    "minmax_scan",
    "minmax_step",
    "use_backend",
]
__version__ = "0.1.0"
_NAMES = {
    "learning": ("learn",),
    "load": ("load_model",),
    "models": ("MinMaxRNC", "MinMaxRNCConfig", "MinMaxRNCLMConfig", "MinMaxRNC_LM"),
    "modules": ("Latch", "MinMaxLayer", "MinMaxNeuron", "State"),
    "ops": ("minmax_scan", "minmax_step", "use_backend"),
}
_FOLDERS = {name: folder for folder, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _NAMES:
        return import_module(f"latchwork.{name}")
    if name not in _FOLDERS:
        raise AttributeError(f"module 'latchwork' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"latchwork.{_FOLDERS[name]}"), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NAMES})
