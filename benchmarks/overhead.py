"""The cost of one call when there is little to compute: a decoding step of width 1456, without gradient."""

from collections.abc import Callable

import torch
from rich.table import Table
from torch import Tensor

from measure import Row, Settings, interleave, progress, threads_set_to

WIDTH = 1456
REPEATS = 1000


def run(settings: Settings) -> list[Row]:
    from latchwork import minmax_scan, minmax_step

    progress("overhead")
    r, s, x = torch.randn(3, 1, WIDTH).unbind(0)
    calls: dict[str, Callable[[], Tensor]] = {
        "minmax_step": lambda: minmax_step(r, s, x),
        "minmax_scan, T = 1": lambda: minmax_scan(r[:, None], s[:, None], x),
        "torch maximum(minimum())": lambda: torch.maximum(torch.minimum(r, x), s),
    }
    with threads_set_to(1), torch.no_grad():
        timings = interleave({name: repeat(call) for name, call in calls.items()}, settings.seconds)
    return [Row(call=name, seconds=timing.seconds / REPEATS) for name, timing in timings.items()]


def repeat(call: Callable[[], Tensor]) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(REPEATS):
            call()

    return repeated


def table(rows: list[Row]) -> Table:
    result = Table(title=f"One call at (1, {WIDTH}), no gradient, 1 thread.")
    result.add_column("call")
    result.add_column("us", justify="right")
    for row in rows:
        result.add_row(row["call"], f"{row['seconds'] * 1e6:.2f}")
    return result
