"""Smooth minima and maxima, for optimisation: log-sum-exp at a temperature. A surrogate, not the robustness.

At temperature c the maximum of a and b becomes c log(exp(a / c) + exp(b / c)), above the maximum by at most c log 2.
All steps of a window take part in its gradient, not only those that attain the value. A value may have another sign
than the robustness. Operators without bounds and windows are linear in T as tensor operations; since and until are a
loop.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Algebra:
    """Minimum and maximum at a temperature, with the operations of `offline.Exact`."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def greatest(self, a: Tensor, b: Tensor) -> Tensor:
        """The smooth maximum."""
        return torch.logaddexp(a / self.temperature, b / self.temperature) * self.temperature

    def least(self, a: Tensor, b: Tensor) -> Tensor:
        """The smooth minimum."""
        return -self.greatest(-a, -b)

    def window(self, p: Tensor, low: int, high: int, minimum: bool) -> Tensor:
        """The best of the steps t + low to t + high: blocks of the window's width, as in ops/torch/temporal.py."""
        if minimum:
            return -self.window(-p, low, high, False)
        steps = p.shape[1]
        low, high = max(low, -steps), min(high, steps)
        width = high - low + 1
        if width < 1 or steps == 0:
            return torch.full_like(p, -torch.inf)
        padded = torch.nn.functional.pad(p, (max(0, -low), max(0, high) + width), value=-torch.inf)
        padded = padded[:, : padded.shape[1] // width * width] / self.temperature
        blocks = padded.reshape(len(p), -1, width)
        starting = _logcumsumexp(blocks).flatten(1)
        ending = _logcumsumexp(blocks.flip(2)).flip(2)
        rest = torch.nn.functional.pad(ending[:, :, 1:], (0, 1), value=-torch.inf).flatten(1)  # the steps after each
        time = torch.arange(steps, device=p.device) + max(0, -low)
        before = (time + low - 1).clamp(min=0)  # the first part is what comes after the step before the window
        left = rest[:, before].masked_fill((time + low) % width == 0, -torch.inf)
        return torch.logaddexp(left, starting[:, time + high]) * self.temperature

    def since(self, p: Tensor, q: Tensor, direction: int, width: int | None) -> Tensor:
        """The recurrence, as a loop. With a width: (p since q) and once[0:width-1] q, exact at temperature 0."""
        states: list[Tensor] = []
        state = p.new_full(p.shape[:1], -torch.inf)
        for p_t, q_t in list(zip(p.unbind(1), q.unbind(1), strict=True))[::direction]:
            state = q_t if not states else self.greatest(self.least(p_t, state), q_t)
            states.append(state)
        value = torch.stack(states[::direction], 1) if states else p.clone()
        if width is None or width > p.shape[1]:
            return value
        low, high = sorted((0, direction * (1 - width)))
        return self.least(value, self.window(q, low, high, minimum=False)) if width > 1 else q


def _logcumsumexp(blocks: Tensor) -> Tensor:
    """Along the last dimension; -infinity stays so, with a gradient of 0 instead of NaN."""
    low = torch.finfo(blocks.dtype).min / 4
    return blocks.clamp(min=low).logcumsumexp(-1)
