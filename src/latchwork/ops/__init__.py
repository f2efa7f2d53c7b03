"""The MinMax recurrence and its algebra."""

from latchwork.ops.dispatch import use_backend
from latchwork.ops.distributed import context_parallel
from latchwork.ops.scan import minmax_scan, minmax_step

__all__ = ["context_parallel", "minmax_scan", "minmax_step", "use_backend"]
