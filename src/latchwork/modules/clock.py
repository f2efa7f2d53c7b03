"""The clock: the step's number, written so that a latch can read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi, sin

import torch
from torch import Tensor, nn

LONGEST = 1 << 20  # of all periods together: each has a table of its own


class Clock(nn.Module):
    """Sine and cosine of the step's number at some periods: 2 numbers a period, (1, 0) turning once in a period.

    A latch holds a value for ever but cannot count. Where the input says what time it is, a latch can open at one
    moment and keep what was there. The periods are whole numbers, so that a table holds every value, and the clock of
    step 10**9 is as exact as that of step 1.

    >>> Clock([4])(torch.arange(5)).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]
    """

    table: Tensor  # (sum of periods, 2)
    periods: Tensor  # (P,)
    starts: Tensor  # (P,), where each period's rows begin

    def __init__(self, periods: Sequence[int]) -> None:
        super().__init__()
        wrong = f"periods must be whole numbers of at least 2, in all at most {LONGEST:,}; got {periods!r:.200}"
        if isinstance(periods, (str, bytes)) or not isinstance(periods, Sequence) or not periods:
            raise ValueError(wrong)
        if any(type(each) is not int or each < 2 for each in periods) or sum(periods) > LONGEST:
            raise ValueError(wrong)
        self.width = 2 * len(periods)
        self._periods = tuple(periods)
        for name, value in self._tables(None, None).items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, steps: Tensor) -> Tensor:
        """Steps, integers of any shape, the first step being 0. Returns (..., 2 P)."""
        rows = steps.unsqueeze(-1) % self.periods + self.starts
        return self.table[rows].flatten(-2)

    def extra_repr(self) -> str:
        """The periods."""
        return ", ".join(map(str, self._periods))

    def _tables(self, device: torch.device | None, dtype: torch.dtype | None) -> dict[str, Tensor]:
        """The buffers, by name."""
        waves = [(_exact(sin, k, each), _exact(cos, k, each)) for each in self._periods for k in range(each)]
        starts = [sum(self._periods[:number]) for number in range(len(self._periods))]
        return {
            "table": torch.tensor(waves, device=device, dtype=dtype),
            "periods": torch.tensor(self._periods, device=device),
            "starts": torch.tensor(starts, device=device),
        }

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Clock:
        """Moved or cast, or made anew without its values (`to_empty`): the tables are computed again, not rounded."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in self._tables(self.table.device, self.table.dtype).items():
            setattr(self, name, value)
        return self


def _exact(wave: Callable[[float], float], k: int, period: int) -> float:
    value = wave(2 * pi * k / period)
    return round(value, 15) + 0.0  # a quarter of a turn is 0, not 6e-17; and no -0


def count_steps(first: Tensor | None, rows: int, length: int, reset: Tensor | None, device: torch.device) -> Tensor:
    """The number of each step, (B, T), or (1, T) where it is the same in every row.

    first: (B,), the number of the first step, or None for 0. reset: (B, T) bool; the count is 0 there.

    >>> count_steps(torch.tensor([7]), 1, 5, torch.tensor([[False, False, True, False, False]]), torch.device("cpu"))
    tensor([[7, 8, 0, 1, 2]])
    """
    t = torch.arange(length, device=device)
    steps = t.unsqueeze(0) if first is None else first.unsqueeze(1) + t
    if reset is None or not length:
        return steps
    latest = torch.where(reset, t, -1).cummax(1).values
    return torch.where(latest < 0, steps, t - latest)
