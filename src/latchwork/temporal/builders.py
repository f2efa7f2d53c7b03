"""Formulas in Python: signals, and the operators that Python has no sign for. No torch here."""

from __future__ import annotations

from latchwork.temporal.formula import Formula, as_formula, constant


def signals(names: str) -> tuple[Formula, ...]:
    """Signals by their names, which blanks divide.

    >>> x, y = signals("x y")
    >>> x - y <= 2.5
    Formula('x - y <= 2.5')
    """
    return tuple(Formula("signal", value=name) for name in names.split())


def parameter(name: str) -> Formula:
    """A threshold to be learnt, `$name` in text."""
    return Formula("parameter", value=name)


def minus(child: Formula) -> Formula:
    """-x; of a constant the constant."""
    return constant(-float(child.value)) if child.operator == "constant" else -child  # type: ignore[arg-type]


def equal(left: Formula | float, right: Formula | float) -> Formula:
    """left == right, of robustness -|left - right|. (`==` of Python compares formulas.)"""
    return Formula("==", (as_formula(left), as_formula(right)))


def unequal(left: Formula | float, right: Formula | float) -> Formula:
    """left != right, of robustness |left - right|."""
    return Formula("!=", (as_formula(left), as_formula(right)))


def iff(left: Formula, right: Formula) -> Formula:
    """Both or neither, of robustness -|left - right|."""
    return Formula("iff", (left, right))


def xor(left: Formula, right: Formula) -> Formula:
    """One of both, of robustness |left - right|."""
    return Formula("xor", (left, right))


def prev(child: Formula, *, strong: bool = False) -> Formula:
    """A step ago; at the first step true, or false if strong."""
    return Formula("s_prev" if strong else "prev", (child,))


def next_(child: Formula, *, strong: bool = False) -> Formula:
    """A step later; at the last step true, or false if strong."""
    return Formula("s_next" if strong else "next", (child,))


def rise(child: Formula) -> Formula:
    """True now and not a step ago; before the trace all is false."""
    return Formula("rise", (child,))


def fall(child: Formula) -> Formula:
    """Not true now and true a step ago; before the trace all is true."""
    return Formula("fall", (child,))


def once(child: Formula, begin: int = 0, end: int | None = None) -> Formula:
    """At some step from `end` to `begin` steps ago; without end, at any step so far."""
    return Formula("once", (child,), begin, end)


def historically(child: Formula, begin: int = 0, end: int | None = None) -> Formula:
    """At every step from `end` to `begin` steps ago."""
    return Formula("historically", (child,), begin, end)


def eventually(child: Formula, begin: int = 0, end: int | None = None) -> Formula:
    """At some step from `begin` to `end` steps ahead; without end, at any step to come."""
    return Formula("eventually", (child,), begin, end)


def always(child: Formula, begin: int = 0, end: int | None = None) -> Formula:
    """At every step from `begin` to `end` steps ahead."""
    return Formula("always", (child,), begin, end)


def since(left: Formula, right: Formula, begin: int = 0, end: int | None = None) -> Formula:
    """Right held at a step from `end` to `begin` steps ago, and left at every step after it.

    With bounds, a gradient at a tie is shared as the parts that it is computed by share it: see docs/temporal.md.
    """
    return Formula("since", (left, right), begin, end)


def until(left: Formula, right: Formula, begin: int = 0, end: int | None = None) -> Formula:
    """Right holds at a step from `begin` to `end` steps ahead, and left at every step before it.

    With bounds, a gradient at a tie is shared as the parts that it is computed by share it: see docs/temporal.md.
    """
    return Formula("until", (left, right), begin, end)
