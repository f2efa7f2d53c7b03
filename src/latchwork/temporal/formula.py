"""Formulas of temporal logic: immutable trees, built in Python or by `parse`, printed, compared. No torch here.

One class holds terms and formulas alike, since the robustness of a term is its value: `speed - 3` is a formula, true
where it is above 0. What an operator means is in temporal/definition.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from latchwork.temporal.monitor import Monitor
    from latchwork.temporal.traces import Signals

DEEPEST = 500  # operators inside each other: equality is recursive
COMPARISONS = ("<=", "<", ">=", ">", "==", "!=")
ARITHMETIC = ("+", "-", "*", "/")
TERMS = ("signal", "parameter", "constant", *ARITHMETIC, "minus", "abs", "sqrt", "exp", "pow")
FUNCTIONS = ("abs", "sqrt", "exp", "pow", "rise", "fall")  # printed as calls
CONNECTIVES = ("and", "or", "implies", "iff", "xor")
STEPS = {"prev": -1, "s_prev": -1, "next": 1, "s_next": 1}  # weak ones are true beyond the trace, strong ones false
PAST = ("once", "historically", "since")
FUTURE = ("eventually", "always", "until")
PREFIXES = ("not", *STEPS, "once", "historically", "eventually", "always")
TIGHTNESS = {  # RTAMT's: what stands later binds tighter; operators of one level group to the left
    operator: level
    for level, operators in enumerate(
        (
            ("xor",),
            ("iff",),
            ("implies",),
            ("or",),
            ("and",),
            ("since",),
            ("until",),
            PREFIXES,
            COMPARISONS,
            ("+", "-"),
            ("*", "/"),
            ("minus",),
        )
    )
    for operator in operators
}
TIGHTEST = len(TIGHTNESS)
ARITY = {
    **dict.fromkeys((*COMPARISONS, *ARITHMETIC, *CONNECTIVES, "since", "until", "pow"), 2),
    **dict.fromkeys((*PREFIXES, "minus", "abs", "sqrt", "exp", "rise", "fall"), 1),
    **dict.fromkeys(("signal", "parameter", "constant"), 0),
}


def _infix(operator: str, *, reflected: bool = False) -> Callable[[Formula, Formula | float], Formula]:
    """A method of Formula for an operator that stands between two operands; reflected: the formula is the right one."""

    def build(self: Formula, other: Formula | float) -> Formula:
        return Formula(operator, (as_formula(other), self) if reflected else (self, as_formula(other)))

    return build


def _prefix(operator: str) -> Callable[[Formula], Formula]:
    return lambda self: Formula(operator, (self,))


@dataclass(frozen=True, eq=False, repr=False)
class Formula:
    """An operator with its operands. Make one with `parse`, or with `signals` and the operators of Python.

    operator: a key of ARITY. children: its operands. begin, end: the bounds of a temporal operator in steps, end None
    where there is none. value: a constant's number, or the name of a signal or parameter.

    >>> from latchwork.temporal import once, signals
    >>> speed, limit = signals("speed limit")
    >>> once(speed > limit, 0, 5) & ~(speed <= 2.5)
    Formula('once[0:5] speed > limit and not speed <= 2.5')
    """

    operator: str
    children: tuple[Formula, ...] = ()
    begin: int = 0
    end: int | None = None
    value: float | str | None = None
    depth: int = field(init=False)
    _hash: int = field(init=False)

    def __post_init__(self) -> None:
        """Check the parts; compute the depth and the hash once."""
        if self.operator not in ARITY:
            raise ValueError(f"operator must be one of {', '.join(ARITY)}; got {self.operator!r}")
        if len(self.children) != ARITY[self.operator]:
            raise ValueError(f"{self.operator} takes {ARITY[self.operator]} operands; got {len(self.children)}")
        _check_bounds(self.operator, self.begin, self.end)
        depth = 1 + max((child.depth for child in self.children), default=0)
        if depth > DEEPEST:
            raise ValueError(f"a formula may have at most {DEEPEST} operators inside each other; this one has more")
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "_hash", hash((*self._key, *(child._hash for child in self.children))))

    @property
    def _key(self) -> tuple[object, ...]:
        return self.operator, self.begin, self.end, self.value

    # Measures.

    @property
    def horizon(self) -> float:
        """How many steps the formula looks ahead: an integer, or infinity."""
        return max(0, self._reach[1])

    @property
    def memory(self) -> float:
        """How many steps the formula looks back: an integer, or infinity."""
        return max(0, -self._reach[0])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the signals, in the order in which they first come."""
        return tuple(str(node.value) for node in self.nodes() if node.operator == "signal")

    def nodes(self) -> tuple[Formula, ...]:
        """Every subformula once, operands before operators, this formula last."""
        return self._nodes

    @cached_property
    def _nodes(self) -> tuple[Formula, ...]:
        found: dict[Formula, None] = {}
        waiting = [self]
        while waiting:
            node = waiting[-1]
            missing = [child for child in node.children if child not in found]
            if missing:
                waiting += reversed(missing)
            else:
                found[waiting.pop()] = None
        return tuple(found)

    @cached_property
    def _reach(self) -> tuple[float, float]:
        """The first and the last step, relative to the one where the formula is asked, that its value depends on."""
        spans: dict[Formula, tuple[float, float]] = {}
        for node in self.nodes():
            spans[node] = _span(node, [spans[child] for child in node.children])
        return spans[self]

    # Values: with torch, imported when asked for.

    def __call__(
        self, signals: Signals, names: Sequence[str] | None = None, *, temperature: float | None = None
    ) -> Tensor:
        """The robustness at each step: (B, T) for signals (B, T), (T,) for signals (T,).

        signals: tensors by name; or one tensor (B, T, D) or (T, D) with `names`, D of them. A signal of booleans is +1
        where true and -1 where false. temperature: if given, every minimum and maximum is replaced by a smooth one,
        a surrogate for optimisation whose values and signs are not those of the formula; towards 0 they become so.
        """
        from latchwork.temporal.offline import robustness

        return robustness(self, signals, names, temperature=temperature)

    def satisfied(self, signals: Signals, names: Sequence[str] | None = None) -> Tensor:
        """Whether the formula holds at each step: booleans, shaped as the robustness.

        It tells < from <= where the robustness is 0. A term without comparison holds where it is above 0.
        """
        from latchwork.temporal.offline import satisfied

        return satisfied(self, signals, names)

    def online(self, batch: int = 1, **options: Any) -> Monitor:
        """A monitor that takes one step at a time of `batch` traces, in constant memory: see temporal/monitor.py."""
        from latchwork.temporal.monitor import Monitor

        return Monitor(self, batch, **options)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The thresholds written as `$name`, each once, as numbers that can be learnt; they start at 0."""
        from latchwork.temporal.parameters import named_parameters

        return iter(named_parameters(self).items())

    def parameters(self) -> list[nn.Parameter]:
        """The thresholds themselves, for an optimizer."""
        return [parameter for _, parameter in self.named_parameters()]

    # Building.

    __and__ = _infix("and")
    __or__ = _infix("or")
    __rshift__ = _infix("implies")
    __le__ = _infix("<=")
    __lt__ = _infix("<")
    __ge__ = _infix(">=")
    __gt__ = _infix(">")
    __add__ = _infix("+")
    __sub__ = _infix("-")
    __mul__ = _infix("*")
    __truediv__ = _infix("/")
    __radd__ = _infix("+", reflected=True)
    __rsub__ = _infix("-", reflected=True)
    __rmul__ = _infix("*", reflected=True)
    __rtruediv__ = _infix("/", reflected=True)
    __invert__ = _prefix("not")
    __neg__ = _prefix("minus")  # of a formula the same values as `not`
    __abs__ = _prefix("abs")

    def __bool__(self) -> bool:
        """An error: `a and b` or `1 < x < 2` of Python would silently drop a part."""
        raise TypeError("a formula has no truth value: combine formulas with & | ~ >>, and write (1 < x) & (x < 2)")

    # Comparing and printing.

    def __eq__(self, other: object) -> bool:
        """The same tree."""
        if self is other:
            return True
        if not isinstance(other, Formula) or self._hash != other._hash:
            return False
        return self._key == other._key and self.children == other.children

    def __hash__(self) -> int:
        """Equal formulas have equal hashes."""
        return self._hash

    def __str__(self) -> str:
        """Text that `parse` reads as this formula."""
        return _text(self)

    def __repr__(self) -> str:
        """The text."""
        return f"Formula({_text(self)!r})"


def constant(value: float) -> Formula:
    """A number. Infinity is `true` in text, minus infinity `false`."""
    if math.isnan(value):
        raise ValueError("a constant must be a number; got nan")
    return Formula("constant", value=float(value))


def as_formula(value: Formula | float) -> Formula:
    """A number as a constant; a formula as it is."""
    if isinstance(value, Formula):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"an operand must be a formula or a number; got {type(value).__name__}")
    return constant(value)


def _check_bounds(operator: str, begin: int, end: int | None) -> None:
    if operator not in PAST + FUTURE:
        if begin != 0 or end is not None:
            raise ValueError(f"{operator} takes no bounds; got [{begin}:{end}]")
        return
    for name, bound in (("begin", begin), ("end", end)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise TypeError(f"{name} of {operator} must be a whole number of steps; got {bound!r}")
    if begin < 0 or (end is not None and end < begin):
        raise ValueError(f"the bounds of {operator} must be 0 <= begin <= end; got [{begin}:{end}]")


def _span(node: Formula, spans: list[tuple[float, float]]) -> tuple[float, float]:
    begin, end = node.begin, math.inf if node.end is None else node.end
    if node.operator in STEPS:
        begin = end = 1
    if node.operator in ("rise", "fall"):
        begin, end = 0, 1
    if node.operator in ("once", "historically", "prev", "s_prev", "rise", "fall"):
        return spans[0][0] - end, spans[0][1] - begin
    if node.operator in ("eventually", "always", "next", "s_next"):
        return spans[0][0] + begin, spans[0][1] + end
    if node.operator in ("since", "until"):
        (left_first, left_last), (first, last) = spans
        if end == 0:
            return first, last
        if node.operator == "since":
            return min(left_first - end + 1, first - end), max(left_last, last - begin)
        return min(left_first, first + begin), max(left_last + end - 1, last + end)
    return min((first for first, _ in spans), default=0), max((last for _, last in spans), default=0)


def _text(node: Formula) -> str:
    """The text, with the parentheses that it needs and no others."""
    texts: dict[Formula, str] = {}
    for each in node.nodes():
        texts[each] = _line(each, texts)
    return texts[node]


def _line(node: Formula, texts: dict[Formula, str]) -> str:
    operator = node.operator

    def operand(child: Formula, level: int) -> str:
        tight = TIGHTNESS.get(child.operator, TIGHTEST)
        if child.operator == "constant" and float(child.value) < 0 and not math.isinf(float(child.value)):  # type: ignore[arg-type]
            tight = TIGHTNESS["minus"]
        return texts[child] if tight >= level else f"({texts[child]})"

    if operator == "constant":
        number = float(node.value)  # type: ignore[arg-type]
        return ("true" if number > 0 else "false") if math.isinf(number) else repr(number)
    if operator == "signal":
        return str(node.value)
    if operator == "parameter":
        return f"${node.value}"
    if operator in FUNCTIONS:
        return f"{operator}({', '.join(texts[child] for child in node.children)})"
    level = TIGHTNESS[operator]
    if operator == "minus":
        return f"-{operand(node.children[0], level)}"
    bounds = "" if node.end is None and node.begin == 0 else f"[{node.begin}:{'' if node.end is None else node.end}]"
    if operator in PREFIXES:
        return f"{operator}{bounds} {operand(node.children[0], level)}"
    left, right = node.children
    return f"{operand(left, level)} {operator}{bounds} {operand(right, level + 1)}"
