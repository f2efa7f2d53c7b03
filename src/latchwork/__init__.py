"""latchwork: MinMax Recurrent Neural Cascades, exact on every path."""

from latchwork.ops import minmax_scan, minmax_step

__all__ = ["minmax_scan", "minmax_step"]
__version__ = "0.1.0"
