"""The best of a sliding window in plain torch.

Blocks have the window's width, so a window ends one block and begins the next. Its best is the better of two: that of
its first step to that block's end, and that of the next block's start to its last step.
"""

from __future__ import annotations

import torch
from torch import Tensor


def unfit(x: Tensor) -> None:
    """Nothing: this backend takes every tensor."""


def _blocks(x: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """x in blocks (B, blocks, width), the best from each block's start to each step, and from each step to its end."""
    steps = x.shape[1]
    whole = -(-steps // width) * width
    blocks = torch.nn.functional.pad(x, (0, whole - steps), value=-torch.inf).reshape(len(x), -1, width)
    return blocks, blocks.cummax(2).values, blocks.flip(2).cummax(2).values.flip(2)


def _ends(steps: int, low: int, high: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each step: the window's first and last step, clipped; whether it has the first part, whether the second."""
    time = torch.arange(steps, device=device)
    first, last = (time + low).clamp(0, steps - 1), (time + high).clamp(0, steps - 1)
    width = high - low + 1
    some = (time + low < steps) & (time + high >= 0)
    opening = time + low <= 0
    return first, last, some & ~opening, some & (opening | (first // width != last // width))


def window(x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    """The best of each window; arguments as in ops/temporal.py."""
    x = -x if minimum else x
    _, starting, ending = _blocks(x, high - low + 1)
    first, last, left, right = _ends(x.shape[1], low, high, x.device)
    y = torch.maximum(
        ending.flatten(1)[:, first].masked_fill(~left, -torch.inf),
        starting.flatten(1)[:, last].masked_fill(~right, -torch.inf),
    )
    return -y if minimum else y


def _attains(a: Tensor, best: Tensor) -> Tensor:
    return (a == best) | (a.isnan() & best.isnan())


def _runs(x: Tensor, best: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Along blocks (B, blocks, width): who attains the best so far, how many do so far, and the run's first place."""
    hit = _attains(x, best) & inside
    fresh = torch.ones_like(hit)
    fresh[..., 1:] = ~_attains(best[..., :-1], best[..., 1:])
    place = torch.arange(x.shape[2], device=x.device).expand_as(x)
    start = torch.where(fresh, place, 0).cummax(2).values
    total = hit.long().cumsum(2)
    return hit, total - total.gather(2, start) + hit.long().gather(2, start), start


def _shares(grad: Tensor, hit: Tensor, start: Tensor) -> Tensor:
    """To each step that attains the best: the sum of grad from it to the end of the run of one best."""
    later = grad.flip(2).cumsum(2).flip(2)
    width = start.shape[2]
    ends = torch.ones_like(hit)
    ends[..., :-1] = start[..., 1:] != start[..., :-1]
    place = torch.arange(width, device=grad.device).expand_as(start)
    end = torch.where(ends, place, width).flip(2).cummin(2).values.flip(2)
    behind = torch.nn.functional.pad(later, (0, 1))[..., 1:].gather(2, end)  # the sum of grad behind each step's run
    return torch.where(hit, later - behind, 0.0)


def window_backward(grad: Tensor, x: Tensor, low: int, high: int, minimum: bool) -> Tensor:
    """The gradient of x, shared evenly by the steps that attain a window's value."""
    dtype, steps = x.dtype, x.shape[1]
    x = -x if minimum else x
    blocks, starting, ending = _blocks(x, high - low + 1)
    first, last, left, right = _ends(steps, low, high, x.device)
    inside = (
        torch.arange(blocks[0].numel(), device=x.device).view_as(blocks[0]) < steps
    )  # the rest fills the last block
    hit_s, count_s, run_s = _runs(blocks, starting, inside)
    hit_e, count_e, run_e = _runs(blocks.flip(2), ending.flip(2), inside.flip(1))
    parts = [
        (ending.flatten(1)[:, first], count_e.flip(2).flatten(1)[:, first], left),
        (starting.flatten(1)[:, last], count_s.flatten(1)[:, last], right),
    ]
    (best_e, number_e, left), (best_s, number_s, right) = parts
    best = torch.maximum(best_e.masked_fill(~left, -torch.inf), best_s.masked_fill(~right, -torch.inf))
    takes_e, takes_s = left & _attains(best_e, best), right & _attains(best_s, best)
    number = number_e * takes_e + number_s * takes_s
    share = grad.double() / number.clamp(min=1)
    zeros = torch.zeros(x.shape[0], blocks.shape[1] * blocks.shape[2], dtype=torch.float64, device=x.device)
    to_e = zeros.index_add(1, first, share * takes_e).view_as(blocks)
    to_s = zeros.index_add(1, last, share * takes_s).view_as(blocks)
    total = _shares(to_s, hit_s, run_s) + _shares(to_e.flip(2), hit_e, run_e).flip(2)
    return total.flatten(1)[:, :steps].to(dtype)
