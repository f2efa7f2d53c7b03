"""The robustness of whole traces, as tensors: every operator linear in T, the gradient that of the definition.

Without bounds, `since` is the recurrence of this library: x_t = max(min(p_t, x_{t-1}), q_t) from -infinity; once and
historically are its special cases, until, eventually and always the same in reversed time. With bounds, once,
historically, eventually and always are sliding windows. since and until with bounds are made of these:

    p since[a:b] q  =  historically[0:a-1] p  and,  a steps ago,  (p since q) and once[0:b-a] q

Why: on the last a steps p must hold, whatever the witness. Before them, let q hold last at u. If u is at most b - a
steps back and p since q holds with any witness, p holds on all steps after that witness, so on all steps after u, and u
is a witness within bounds. That is about truth; and two formulas of minima and maxima that agree on truth values agree
on all numbers, since "above the level c" turns one into the other for each c.

Ties share the gradient evenly: between the two operands of and, or, implies; in the recurrence, step by step, as in
`minmax_scan`; in a window among all steps that attain its value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from latchwork.ops.temporal import latch, window
from latchwork.temporal import smooth
from latchwork.temporal.formula import COMPARISONS, Formula
from latchwork.temporal.parameters import named_parameters
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
    if node.operator in POINTWISE:
        return POINTWISE[node.operator](*operands)
    algebra = EXACT if temperature is None else smooth.Algebra(temperature)
    if node.operator in ("and", "or", "implies"):
        left, right = operands
        if node.operator == "and":
            return algebra.least(left, right)
        return algebra.greatest(-left if node.operator == "implies" else left, right)
    p, q = operands[0].expand(shape), operands[-1].expand(shape)
    if node.operator in SHIFTS:
        steps, fill = SHIFTS[node.operator]
        return shift(p, steps, fill)
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

    def so_far(self, p: Tensor, direction: int, minimum: bool) -> Tensor:
        """The best of all steps up to t, or with direction -1 from t on."""
        return latch(p, None, torch.inf, direction) if minimum else latch(None, p, -torch.inf, direction)

    def since(self, p: Tensor, q: Tensor, direction: int) -> Tensor:
        """The recurrence."""
        return latch(p, q, -torch.inf, direction)


EXACT = Exact()


def _best(
    algebra: Exact | smooth.Algebra, p: Tensor, begin: int, end: int | None, direction: int, minimum: bool
) -> Tensor:
    if end is None:
        best = algebra.so_far(p, direction, minimum)
        return shift(best, direction * begin, torch.inf if minimum else -torch.inf)
    low, high = (-end, -begin) if direction == 1 else (begin, end)
    return algebra.window(p, low, high, minimum)


def _since(
    algebra: Exact | smooth.Algebra, p: Tensor, q: Tensor, begin: int, end: int | None, direction: int
) -> Tensor:
    if end == 0:
        return q
    lost = None
    if end is not None and bool((p.sum() + q.sum()).isnan()):  # a NaN must not outlive its window
        lost = _lost(p, q, begin, end, direction)
        p, q = p.masked_fill(p.isnan(), torch.inf), q.masked_fill(q.isnan(), -torch.inf)
    value = algebra.since(p, q, direction)
    if end is not None and end - begin < p.shape[1]:
        value = algebra.least(value, _best(algebra, q, 0, end - begin, direction, minimum=False))
    if begin:
        held = _best(algebra, p, 0, begin - 1, direction, minimum=True)
        value = algebra.least(held, shift(value, direction * begin, -torch.inf))
    return value if lost is None else value.masked_fill(lost, torch.nan)


def _lost(p: Tensor, q: Tensor, begin: int, end: int, direction: int) -> Tensor:
    """Where the window of a timed since holds a NaN."""
    bad_p, bad_q = (each.isnan().to(p.dtype) for each in (p, q))
    of_p = _best(EXACT, bad_p, 0, end - 1, direction, minimum=False)
    return (of_p > 0) | (_best(EXACT, bad_q, begin, end, direction, minimum=False) > 0)


def shift(p: Tensor, steps: int, fill: float) -> Tensor:
    """P of `steps` steps ago, or ahead if below 0; `fill` where that is outside the trace."""
    size = p.shape[1]
    moved = min(abs(steps), size)
    outside = p.new_full((p.shape[0], moved), fill)
    return torch.cat([outside, p[:, : size - moved]] if steps > 0 else [p[:, moved:], outside], 1) if moved else p


Pointwise = Callable[..., Tensor]
POINTWISE: dict[str, Pointwise] = {
    "<=": lambda p, q: q - p,
    "<": lambda p, q: q - p,
    ">=": torch.sub,
    ">": torch.sub,
    "==": lambda p, q: -(p - q).abs(),
    "!=": lambda p, q: (p - q).abs(),
    "iff": lambda p, q: -(p - q).abs(),
    "xor": lambda p, q: (p - q).abs(),
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "not": torch.neg,
    "minus": torch.neg,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "pow": torch.pow,
}
COMPARE: dict[str, Pointwise] = {
    "<=": torch.le,
    "<": torch.lt,
    ">=": torch.ge,
    ">": torch.gt,
    "==": torch.eq,
    "!=": torch.ne,
}
TERMS = ("signal", "parameter", "constant", "+", "-", "*", "/", "minus", "abs", "sqrt", "exp", "pow")
SHIFTS = {
    "prev": (1, torch.inf),
    "s_prev": (1, -torch.inf),
    "next": (-1, torch.inf),
    "s_next": (-1, -torch.inf),
}
