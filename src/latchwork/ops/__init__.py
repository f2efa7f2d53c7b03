"""The MinMax recurrence and its algebra."""

from latchwork.ops.blur import blurred_scan
from latchwork.ops.scan import minmax_scan, minmax_step

__all__ = ["blurred_scan", "minmax_scan", "minmax_step"]
