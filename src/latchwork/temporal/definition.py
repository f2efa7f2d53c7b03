"""The definition: what each operator means, as nested loops straight from the semantics. Everything else equals it.

A trace has the steps 0 to T - 1. The robustness of a formula at step t is a number: above 0 it holds, below 0 it does
not, and the distance from 0 says by how much. A term is its value; true is +infinity, false -infinity.

- a <= b and a < b: b - a. a >= b and a > b: a - b. a == b: -|a - b|. a != b: |a - b|.
- not p: -p. p and q: min. p or q: max. p implies q: max(-p, q). p iff q: -|p - q|. p xor q: |p - q| (as RTAMT).
- prev p, s_prev p: p at t - 1; at step 0 true, or false if strong. next p, s_next p: p at t + 1; at the last step true,
  or false if strong. rise(p): min(-p at t - 1, p), false before the trace. fall(p): min(p at t - 1, -p), true there.
- once[a:b] p: the maximum of p over the steps t - b to t - a; historically[a:b] p: the minimum. eventually[a:b] p:
  the maximum over t + a to t + b; always[a:b] p: the minimum. Steps outside the trace do not count, and the maximum of
  nothing is false, the minimum true. Without bounds: all steps up to t, or from t on.
- p since[a:b] q: the maximum over the steps u from t - b to t - a of min(q at u, the minimum of p over u + 1 to t).
  p until[a:b] q: over u from t + a to t + b of min(q at u, the minimum of p over t to u - 1). Without bounds u is any
  step up to t, or from t on; and false stands before the trace, or behind it, as one more q.

Gradients at ties: of k numbers that attain a minimum or maximum, each gets 1/k. since and until take theirs in this
order: x = max(min(p, x), q) from the window's step farthest from t to its nearest, from x = false, as `minmax_scan`
does step by step; then the minimum of x and of the minimum of p over the steps from there to t. That this is the
maximum above follows from min(p, max(a, b)) = max(min(p, a), min(p, b)), and is tested.

A minimum or maximum of numbers of which one is NaN is NaN. So a NaN reaches every value whose window it is in, and no
other; operators without end carry it to the end of the trace (or to its beginning). iff and xor of two equal
infinities are NaN. Where a value is NaN there is no gradient to speak of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from latchwork.temporal.formula import Formula

Trace = list[Any]  # floats, or 0-dimensional tensors for gradients


def define(
    formula: Formula, signals: Mapping[str, Sequence[Any]], parameters: Mapping[str, Any] | None = None
) -> Trace:
    """The robustness at every step. signals: lists of floats, or of 0-dimensional tensors, which autograd follows.

    >>> from latchwork.temporal import parse
    >>> define(parse("x since y"), {"x": [1.0, 1.0, 2.0], "y": [0.0, 3.0, -1.0]})
    [0.0, 3.0, 2.0]
    """
    steps = len(next(iter(signals.values()), ()))
    values: dict[Formula, Trace] = {}
    for node in formula.nodes():
        if node.operator == "signal":
            values[node] = list(signals[str(node.value)])
        elif node.operator == "parameter":
            values[node] = [(parameters or {})[str(node.value)]] * steps
        elif node.operator == "constant":
            values[node] = [float(node.value)] * steps  # type: ignore[arg-type]
        else:
            operands = [values[child] for child in node.children]
            values[node] = [at(node, operands, t, steps) for t in range(steps)]
    return values[formula]


def at(node: Formula, operands: list[Trace], t: int, steps: int) -> Any:
    """The value of an operator at step t."""
    p, q = operands[0], operands[-1]
    operator = node.operator
    if operator in ("prev", "s_prev"):
        return p[t - 1] if t > 0 else math.inf if operator == "prev" else -math.inf
    if operator in ("next", "s_next"):
        return p[t + 1] if t + 1 < steps else math.inf if operator == "next" else -math.inf
    if operator == "rise":
        return least([-(p[t - 1] if t > 0 else -math.inf), p[t]])
    if operator == "fall":
        return least([p[t - 1] if t > 0 else math.inf, -p[t]])
    if operator in ("once", "historically", "since"):
        last, first = t - node.begin, 0 if node.end is None else max(0, t - node.end)
    elif operator in ("eventually", "always", "until"):
        first, last = t + node.begin, steps - 1 if node.end is None else min(steps - 1, t + node.end)
    else:
        return pointwise(operator, p[t], q[t])
    window = range(first, last + 1)
    if operator in ("once", "eventually"):
        return greatest([p[u] for u in window])
    if operator in ("historically", "always"):
        return least([p[u] for u in window])
    if operator == "since":
        order, held, beyond = window, p[max(0, last + 1) : t + 1], node.end is None or t < node.end
    else:
        order, held, beyond = window[::-1], p[t:first], node.end is None or t + node.end >= steps
    x: Any = -math.inf
    for u in order:
        if u != order[0] or beyond:  # the p of the window's farthest step comes before every q in it
            x = least([p[u], x])
        x = greatest([x, q[u]])
    return least([least(held), x]) if held else x


def pointwise(operator: str, p: Any, q: Any) -> Any:
    """An operator that looks at one step alone; q is p where it has one operand."""
    if operator in ("<=", "<"):
        return q - p
    if operator in (">=", ">", "-"):
        return p - q
    if operator in ("==", "iff"):
        return -abs(p - q)
    if operator in ("!=", "xor"):
        return abs(p - q)
    if operator == "and":
        return least([p, q])
    if operator == "or":
        return greatest([p, q])
    if operator == "implies":
        return greatest([-p, q])
    if operator == "+":
        return p + q
    if operator == "*":
        return p * q
    if operator in ("not", "minus"):
        return -p
    if operator == "abs":
        return abs(p)
    functions: dict[str, Callable[..., Tensor]] = {
        "/": torch.div,
        "sqrt": torch.sqrt,
        "exp": torch.exp,
        "pow": torch.pow,
    }
    tensors = [torch.as_tensor(each, dtype=torch.float64) for each in ([p, q] if operator in ("/", "pow") else [p])]
    value = functions[operator](*tensors)
    return value if isinstance(p, Tensor) or isinstance(q, Tensor) else float(value)


def least(values: Sequence[Any]) -> Any:
    """The minimum; of nothing +infinity; of a NaN NaN. Of tensors, a tie shares the gradient evenly."""
    if any(isinstance(value, Tensor) for value in values):
        return torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values]).amin()
    return math.nan if any(value != value for value in values) else min(values, default=math.inf)


def greatest(values: Sequence[Any]) -> Any:
    """The maximum; of nothing -infinity; of a NaN NaN. Of tensors, a tie shares the gradient evenly."""
    if any(isinstance(value, Tensor) for value in values):
        return torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values]).amax()
    return math.nan if any(value != value for value in values) else max(values, default=-math.inf)
