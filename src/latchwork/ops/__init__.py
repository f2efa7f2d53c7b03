"""The MinMax recurrence and its algebra."""

from latchwork.ops.dispatch import use_backend
from latchwork.ops.scan import minmax_scan, minmax_step

__all__ = ["minmax_scan", "minmax_step", "use_backend"]
