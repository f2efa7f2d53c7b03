"""The best of a sliding window, and the recurrence over one, in plain torch.

The best: blocks have the window's width, so a window ends one block and begins the next. Its best is the better of two:
that of its first step to that block's end, and that of the next block's start to its last step.

The recurrence: spans of 1, 2, 4, ... steps end at each step, and a window is a few of them in a row. That takes time
and memory of T times the logarithm of the width. csrc/temporal.cpp says why a span's gradient needs four numbers.
"""

from __future__ import annotations

from typing import NamedTuple

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
    best_e, number_e = (each.flatten(1)[:, first] for each in (ending, count_e.flip(2)))
    best_s, number_s = (each.flatten(1)[:, last] for each in (starting, count_s))
    best = torch.maximum(best_e.masked_fill(~left, -torch.inf), best_s.masked_fill(~right, -torch.inf))
    takes_e, takes_s = left & _attains(best_e, best), right & _attains(best_s, best)
    number = number_e * takes_e + number_s * takes_s
    share = grad.double() / number.clamp(min=1)
    zeros = torch.zeros(x.shape[0], blocks.shape[1] * blocks.shape[2], dtype=torch.float64, device=x.device)
    to_e = zeros.index_add(1, first, share * takes_e).view_as(blocks)
    to_s = zeros.index_add(1, last, share * takes_s).view_as(blocks)
    total = _shares(to_s, hit_s, run_s) + _shares(to_e.flip(2), hit_e, run_e).flip(2)
    return total.flatten(1)[:, :steps].to(dtype)


class Span(NamedTuple):
    """Steps x -> max(min(r, x), s) in a row, as one: x clamped to low and high; what x gets where it ties."""

    low: Tensor
    high: Tensor
    at_low: Tensor
    at_high: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """The state after the steps, from x."""
        return torch.maximum(torch.minimum(x, self.high), self.low)

    def passes(self, x: Tensor) -> Tensor:
        """The part of the gradient that x gets where the result is x."""
        return torch.where(x == self.low, self.at_low, torch.where(x == self.high, self.at_high, 1.0))

    def then(self, other: Span) -> Span:
        """This span and the next, as one."""
        low, high = other(self.low), other(self.high)
        at_low, at_high = (
            torch.where(self(x) == x, self.passes(x) * other.passes(x), 0.0) for x in (low, high)
        )  # fmt: skip
        return Span(low, high, at_low, at_high)

    def ago(self, steps: int) -> Span:
        """The span that ended so many steps before; outside the trace one that changes nothing."""
        return Span(*(_ago(each, steps, fill) for each, fill in zip(self, (-torch.inf, torch.inf, 1, 1), strict=True)))

    def take(self, grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of self(x) = y (4, B, T), by x: below y, above, equal to y and low, or high; and what x gets."""
        below, above = x < y, x > y
        at_low = ~(below | above) & (y == self.low)
        at_high = ~(below | above | at_low) & (y == self.high)
        rest = torch.where(below | above, 0.0, grad * self.passes(y))
        return grad * torch.stack([below, above, at_low, at_high]), rest


def _ago(x: Tensor, steps: int, fill: float) -> Tensor:
    return torch.nn.functional.pad(x, (steps, 0), value=fill)[..., : x.shape[-1]]


def _ahead(x: Tensor, steps: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, steps))[..., steps:]


def _spans(r: Tensor, s: Tensor, width: int) -> list[Span]:
    """Of 1, 2, 4, ... steps that end at each step."""
    passes = torch.where(r < s, 0.0, torch.where(r == s, 0.25, 0.5)).double()
    spans = [Span(s, torch.maximum(r, s), passes, torch.full_like(passes, 0.5))]
    while 2 ** len(spans) <= width:
        spans.append(spans[-1].ago(2 ** (len(spans) - 1)).then(spans[-1]))
    return spans


def _parts(spans: list[Span], width: int) -> list[tuple[int, int, Span]]:
    """The spans that make up a window, from its first step on: each with its number and how long ago it ended."""
    numbers = [number for number in reversed(range(len(spans))) if width >> number & 1]
    ends = [width & ((1 << number) - 1) for number in numbers]
    return [(number, end, spans[number].ago(end)) for number, end in zip(numbers, ends, strict=True)]


def latch(r: Tensor, s: Tensor, step: int, width: int) -> Tensor:
    """The recurrence over the last `width` steps; arguments as in ops/temporal.py."""
    if step == -1:
        return latch(r.flip(1), s.flip(1), 1, width).flip(1)
    (_, _, first), *others = _parts(_spans(r, s, width), width)
    x = first.low
    for _, _, span in others:
        x = span(x)
    return x + 0.0


def latch_backward(grad: Tensor, r: Tensor, s: Tensor, x: Tensor, step: int, width: int) -> tuple[Tensor, Tensor]:
    """The gradients of r and s: those of the loop over each window, at ties too."""
    if step == -1:
        to_r, to_s = latch_backward(grad.flip(1), r.flip(1), s.flip(1), x.flip(1), 1, width)
        return to_r.flip(1), to_s.flip(1)
    spans = _spans(r, s, width)
    shares = [grad.new_zeros(4, *grad.shape, dtype=torch.float64) for _ in spans]
    parts = _parts(spans, width)
    states = [torch.full_like(x, -torch.inf), parts[0][2].low]
    for _, _, span in parts[1:]:
        states.append(span(states[-1]))
    rest = torch.where(x.isnan(), 0.0, grad.double())
    for (number, end, span), before, after in reversed(list(zip(parts, states[:-1], states[1:], strict=True))):
        taken, rest = span.take(rest, before, after)
        shares[number] += _ahead(taken, end)
    for number in reversed(range(1, len(spans))):
        both, second, steps = spans[number], spans[number - 1], 2 ** (number - 1)
        first = second.ago(steps)
        below, above, at_low, at_high = shares[number]
        to_first = torch.zeros_like(shares[number])
        ways = (
            (below, first.low, both.low),
            (above, first.high, both.high),
            (at_low, first(both.low), both.low),
            (at_high, first(both.high), both.high),
        )
        for place, (given, start, y) in enumerate(ways):
            taken, rest = second.take(given, start, y)
            shares[number - 1] += taken
            if place < 2:
                to_first[place] += rest
            else:
                to_first += first.take(rest, y, y)[0]
        shares[number - 1] += _ahead(to_first, steps)
    below, above, at_low, at_high = shares[0]
    of_s = torch.where(r > s, 0.0, torch.where(r == s, 0.5, 1.0))
    grad_s = below + above * of_s + at_low * torch.where(r < s, 1.0, 0.5)
    grad_r = above * (1 - of_s) + torch.where(r == s, at_low * 0.25, at_high * 0.5)
    return grad_r.to(r.dtype), grad_s.to(s.dtype)
