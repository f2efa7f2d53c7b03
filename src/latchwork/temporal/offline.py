"""The robustness of whole traces, as tensors: every operator linear in T, the gradient that of the definition.

Without bounds, `since` is the recurrence of this library: x_t = max(min(p_t, x_{t-1}), q_t) from -infinity; until is
the same in reversed time. With bounds [0:b] it is the recurrence over the last b + 1 steps alone; with bounds [a:b],
that of a steps ago, and p has held since. once, historically, eventually and always are sliding windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from latchwork.ops.temporal import latch, window
from latchwork.temporal import smooth
from latchwork.temporal.formula import COMPARISONS, STEPS, TERMS, Formula
from latchwork.temporal.parameters import named_parameters
from latchwork.temporal.program import FILLS, POINTWISE
from latchwork.temporal.step import ELEMENTWISE
from latchwork.temporal.traces import Signals, read

Values = dict[Formula, Tensor]


def robustness(
    formula: Formula, signals: Signals, names: Sequence[str] | None = None, *, temperature: float | None = None
) -> Tensor:
    """See `Formula.__call__`."""
    return subformulas(formula, signals, names, temperature=temperature, keep=False)[formula]


def satisfied(formula: Formula, signals: Signals, names: Sequence[str] | None = None) -> Tensor:
    """See `Formula.satisfied`."""
    return subformulas(formula, signals, names, truth=True)[formula] > 0


def subformulas(
    formula: Formula,
    signals: Signals,
    names: Sequence[str] | None = None,
    *,
    temperature: float | None = None,
    truth: bool = False,
    keep: bool = True,
) -> Values:
    """The value of every subformula at each step. truth: +1 where it holds and -1 where not, instead of robustness.

    keep: else a value is dropped as soon as no operator needs it, so that the next one takes its memory.
    """
    if temperature is not None and not temperature > 0:
        raise ValueError(f"temperature must be above 0; got {temperature}")
    known = read(signals, formula.names, names)
    like = next(iter(known.values()))
    rows = {name: value if value.dim() == 2 else value.unsqueeze(0) for name, value in known.items()}
    shape = next(iter(rows.values())).shape
    thresholds = named_parameters(formula)
    values: Values = {}
    numbers: Values = {}  # with truth: what stands below comparisons, as numbers
    readers = Counter(child for node in formula.nodes() for child in set(node.children))
    for node in formula.nodes():
        if node.operator == "signal":
            value = rows[str(node.value)]
        elif node.operator == "parameter":
            value = thresholds[str(node.value)].to(like)
        elif node.operator == "constant":
            value = like.new_full((), float(node.value))  # type: ignore[arg-type]
        else:
            value = _value(node, [values[child] for child in node.children], shape, temperature)
        values[node] = value
        for child in set(node.children):
            readers[child] -= 1
            if not keep and readers[child] == 0:
                del values[child]
    if truth:
        numbers, values = values, {}
        for node in formula.nodes():
            values[node] = _truth(node, [values[child] for child in node.children], numbers, shape)
    return {node: value.expand(shape).reshape(like.shape) for node, value in values.items()}


def _truth(node: Formula, operands: list[Tensor], numbers: Values, shape: torch.Size) -> Tensor:
    if node.operator in COMPARISONS:
        left, right = (numbers[child] for child in node.children)
        return _signs(COMPARE[node.operator](left, right))
    if node.operator in ("iff", "xor"):
        same = operands[0] * operands[1]
        return same if node.operator == "iff" else -same
    if node.operator in TERMS:
        return _signs(numbers[node] > 0)
    return _value(node, operands, shape, None).clamp(-1, 1)


def _signs(truth: Tensor) -> Tensor:
    return torch.where(truth, 1.0, -1.0)


def _value(node: Formula, operands: list[Tensor], shape: torch.Size, temperature: float | None) -> Tensor:
    algebra = EXACT if temperature is None else smooth.Algebra(temperature)
    if node.operator in ("and", "or", "implies"):
        left, right = operands
        if node.operator == "and":
            return algebra.least(left, right)
        return algebra.greatest(-left if node.operator == "implies" else left, right)
    if node.operator in POINTWISE:
        return ELEMENTWISE[POINTWISE[node.operator]](*operands)
    p, q = operands[0].expand(shape), operands[-1].expand(shape)
    if node.operator in STEPS:
        return shift(p, -STEPS[node.operator], FILLS[node.operator])
    if node.operator == "rise":
        return algebra.least(-shift(p, 1, -torch.inf), p)
    if node.operator == "fall":
        return algebra.least(shift(p, 1, torch.inf), -p)
    direction = 1 if node.operator in ("once", "historically", "since") else -1
    if node.operator in ("since", "until"):
        return _since(algebra, p, q, node.begin, node.end, direction)
    minimum = node.operator in ("historically", "always")
    return _best(algebra, p, node.begin, node.end, direction, minimum)


class Exact:
    """Minimum and maximum as they are."""

    least = staticmethod(torch.minimum)
    greatest = staticmethod(torch.maximum)

    def window(self, p: Tensor, low: int, high: int, minimum: bool) -> Tensor:
        """The best of the steps t + low to t + high."""
        return window(p, low, high, minimum=minimum)

    def since(self, p: Tensor, q: Tensor, direction: int, width: int | None) -> Tensor:
        """The recurrence, over all steps or over the last `width`."""
        return latch(p, q, direction, width)


EXACT = Exact()


def _best(
    algebra: Exact | smooth.Algebra, p: Tensor, begin: int, end: int | None, direction: int, minimum: bool
) -> Tensor:
    end = begin + p.shape[1] if end is None else end
    low, high = (-end, -begin) if direction == 1 else (begin, end)
    return algebra.window(p, low, high, minimum)


def _since(
    algebra: Exact | smooth.Algebra, p: Tensor, q: Tensor, begin: int, end: int | None, direction: int
) -> Tensor:
    value = algebra.since(p, q, direction, None if end is None else end - begin + 1)
    if not begin:
        return value
    held = _best(algebra, p, 0, begin - 1, direction, minimum=True)
    return algebra.least(held, shift(value, direction * begin, -torch.inf))


def shift(p: Tensor, steps: int, fill: float) -> Tensor:
    """P of `steps` steps ago, or ahead if below 0; `fill` where that is outside the trace."""
    size = p.shape[1]
    moved = min(abs(steps), size)
    outside = p.new_full((p.shape[0], moved), fill)
    return torch.cat([outside, p[:, : size - moved]] if steps > 0 else [p[:, moved:], outside], 1) if moved else p


COMPARE: dict[str, Callable[..., Tensor]] = {
    "<=": torch.le,
    "<": torch.lt,
    ">=": torch.ge,
    ">": torch.gt,
    "==": torch.eq,
    "!=": torch.ne,
}
