"""A formula as equations between steps: and, or, a leaf, a node a step ahead, a node a step ago. No torch here.

Negations are pushed to the leaves. An operator becomes an equation about itself: u = p until q is
u = q or (p and u a step ahead), where behind the last step u is false; always p is u = p and u a step ahead, there
true. A `next` node reads a variable: what a node is a step ahead. So, given the leaves and the variables, every node
has a value, and the nodes read by variables say what the variables of the step before were.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy

from latchwork.temporal.formula import PAST, Formula

MOST_NODES = 10_000
MOST_CASES = 1 << 20  # of inputs and corners, when the corners are enumerated
Bits = tuple[bool, ...]
DUAL = {
    **{"and": "or", "or": "and", "prev": "s_prev", "s_prev": "prev", "next": "s_next", "s_next": "next"},
    **{"once": "historically", "historically": "once", "eventually": "always", "always": "eventually"},
}


class TooLarge(ValueError):
    """A formula that has too many states to enumerate; the message says what of."""


class Node(NamedTuple):
    """kind: leaf, and, or, next, prev. a, b: the operands; of a leaf its number; of next and prev `a` is the node read,
    and `outside` what it is beyond the trace."""

    kind: str
    a: int = -1
    b: int = -1
    outside: bool = False


class Core:
    """The equations of a formula. leaves: their formulas. variables: the nodes that `next` nodes read, with what they
    are behind the trace; memories: those that `prev` nodes read."""

    def __init__(self, formula: Formula, is_leaf: Callable[[Formula], bool], *, past: bool = True) -> None:
        self.is_leaf, self.past = is_leaf, past
        self.nodes: list[Node] = []
        self.leaves: list[Formula] = []
        self._made: dict[tuple[object, ...], int] = {}
        self.root = self._visit(formula, False)
        self.variables = sorted({(node.a, node.outside) for node in self.nodes if node.kind == "next"})
        self.memories = sorted({(node.a, node.outside) for node in self.nodes if node.kind == "prev"})
        self.order = self._order()

    def corners(self) -> list[Bits]:
        """All values of the variables that some future can have, those behind the trace first.

        What stands in the past may be anything here, so there can be more than those that occur.
        """
        if not self.variables:
            return [()]
        inputs = self._inputs()
        start = tuple(outside for _, outside in self.variables)
        found = {start: None}
        if len(inputs) > 16:
            raise TooLarge(
                f"the formula has {len(inputs)} parts below its future operators; at most 16 can be followed"
            )
        cases = numpy.array(list(product([False, True], repeat=len(inputs)))).reshape(2 ** len(inputs), -1).T
        waiting = [start]
        while waiting:
            corner = waiting.pop()
            values: dict[int, numpy.ndarray] = dict(zip(inputs, cases, strict=True))
            for k in self.order:
                node = self.nodes[k]
                if k in values:
                    continue
                if node.kind == "next":
                    values[k] = numpy.full(cases.shape[1], corner[self.variables.index((node.a, node.outside))])
                elif node.kind in ("and", "or") and node.a in values and node.b in values:
                    both = numpy.logical_and if node.kind == "and" else numpy.logical_or
                    values[k] = both(values[node.a], values[node.b])
            rows = numpy.array([values[read] for read, _ in self.variables]).reshape(len(self.variables), -1)
            for column in numpy.unique(rows, axis=1).T.tolist():
                if tuple(column) not in found:
                    found[tuple(column)] = None
                    waiting.append(tuple(column))
            if len(found) * cases.shape[1] > MOST_CASES:
                raise TooLarge(f"the formula's future has more than {len(found):,} cases")
        return list(found)

    def _inputs(self) -> list[int]:
        """The nodes that do not depend on the future and stand right below some that do, and prev nodes of the rest."""
        ahead = set[int]()
        for k in self.order:
            node = self.nodes[k]
            if node.kind == "next" or (node.kind in ("and", "or") and (node.a in ahead or node.b in ahead)):
                ahead.add(k)
        below = {part for k in ahead if self.nodes[k].kind != "next" for part in (self.nodes[k].a, self.nodes[k].b)}
        return sorted((below | {read for read, _ in self.variables}) - ahead)

    def _order(self) -> list[int]:
        """The nodes so that operands of `and` and `or` come first."""
        done: dict[int, None] = {}
        for first in range(len(self.nodes)):
            waiting = [first]
            while waiting:
                k = waiting[-1]
                node = self.nodes[k]
                missing = [part for part in (node.a, node.b) if part not in done] if node.kind in ("and", "or") else []
                if missing:
                    waiting += missing
                else:
                    done[waiting.pop()] = None
        return list(done)

    # Making the equations.

    def _add(self, kind: str, a: int = -1, b: int = -1, outside: bool = False) -> int:
        key = (kind, a, b, outside)
        if key not in self._made:
            if len(self.nodes) >= MOST_NODES:
                raise TooLarge(f"the formula has more than {MOST_NODES:,} equations: its bounds are too wide")
            self._made[key] = len(self.nodes)
            self.nodes.append(Node(kind, a, b, outside))
        return self._made[key]

    def _leaf(self, formula: Formula) -> int:
        if formula not in self.leaves:
            self.leaves.append(formula)
        return self._add("leaf", self.leaves.index(formula))

    def _visit(self, formula: Formula, negated: bool) -> int:
        key = (formula, negated)
        if key not in self._made:
            self._made[key] = self._node(formula, negated)
        return self._made[key]

    def _node(self, formula: Formula, negated: bool) -> int:
        operator = formula.operator
        if self.is_leaf(formula):
            return self._leaf(~formula if negated else formula)
        if operator == "not":
            return self._visit(formula.children[0], not negated)
        if not self.past and operator in (*PAST, "prev", "s_prev", "rise", "fall", "iff", "xor"):
            raise TooLarge(f"{operator} stands over an operator without end: evaluate the formula on whole traces")
        if operator in ("rise", "fall"):  # p, and not p a step ago; or the other way round
            turned = negated == (operator == "rise")
            now, ago = (self._visit(formula.children[0], each) for each in (turned, not turned))
            return self._add("or" if negated else "and", now, self._move(ago, -1, 1, not negated))
        if operator in ("iff", "xor"):
            p, q = formula.children
            return self._visit((p >> q) & (q >> p) if (operator == "iff") != negated else (p | q) & ~(p & q), False)
        if operator == "implies":
            p, q = formula.children
            return self._visit(~p | q, negated)
        if operator in ("since", "until"):
            return self._since(formula, negated)
        operator = DUAL[operator] if negated else operator
        if operator in ("and", "or"):
            left, right = (self._visit(child, negated) for child in formula.children)
            return self._add(operator, left, right)
        inside = self._visit(formula.children[0], negated)
        if operator in ("prev", "s_prev", "next", "s_next"):
            return self._move(inside, -1 if "prev" in operator else 1, 1, operator in ("prev", "next"))
        direction = -1 if operator in ("once", "historically") else 1
        whole = operator in ("historically", "always")
        best = self._best(inside, direction, whole, None if formula.end is None else formula.end - formula.begin)
        return self._move(best, direction, formula.begin, whole)

    def _move(self, inside: int, direction: int, steps: int, outside: bool) -> int:
        for _ in range(min(steps, MOST_NODES + 1)):
            inside = self._add("next" if direction == 1 else "prev", inside, -1, outside)
        return inside

    def _best(self, p: int, direction: int, whole: bool, end: int | None) -> int:
        return self._unroll("and" if whole else "or", p, lambda own: self._move(own, direction, 1, whole), end)

    def _unroll(self, kind: str, first: int, rest: Callable[[int], int], times: int | None) -> int:
        """first, and (or) the rest made of the value itself: so many times; without end as an equation about itself."""
        value = first
        if times is None:
            value = len(self.nodes)
            self.nodes.append(Node(kind, first, -1))
            self.nodes[value] = Node(kind, first, rest(value))
        for _ in range(min(times or 0, MOST_NODES + 1)):
            value = self._add(kind, first, rest(value))
        return value

    def _since(self, formula: Formula, negated: bool) -> int:
        """q or (p and itself a step on), false beyond the trace; negated all is turned round."""
        direction = -1 if formula.operator == "since" else 1
        p, q = (self._visit(child, negated) for child in formula.children)
        over, under = ("and", "or") if negated else ("or", "and")
        width = None if formula.end is None else formula.end - formula.begin
        value = self._unroll(over, q, lambda own: self._add(under, p, self._move(own, direction, 1, negated)), width)
        if formula.begin:
            held = self._best(p, direction, not negated, formula.begin - 1)
            value = self._add(under, held, self._move(value, direction, formula.begin, negated))
        return value
