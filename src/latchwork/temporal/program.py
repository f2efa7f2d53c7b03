"""A formula as a list of instructions that go one step at a time: what a monitor runs. No torch here.

A formula that looks ahead is known late. So each instruction has a delay d: at time t it gives the value at step t - d.
Operands of different delays are aligned by lags. A future operator with bounds [a:b] over an operand of delay d has
delay d + b and is then a window over the past (RTAMT calls it pastification); a past operator keeps the delay of its
operand, or has less where it looks back. A step before the first or behind the last is absent, and FILL puts there what
the operator above takes for it.

Timed since and until lose their lower bound first: p since[a:b] q is historically[0:a-1] p and, a steps ago,
p since[0:b-a] q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from latchwork.temporal.builders import always, eventually, historically, once, since, until
from latchwork.temporal.formula import Formula

OPERATIONS = (  # as in csrc/monitor.cpp
    *("signal", "constant", "lag", "fill", "largest", "smallest", "latch", "since", "until"),
    *("add", "subtract", "reversed", "multiply", "divide", "negate", "abs", "sqrt", "distance", "near"),
    *("minimum", "maximum", "implies"),
    *("exp", "pow"),  # not in C++: its rounding is not torch's
)
POINTWISE = {
    **{"<=": "reversed", "<": "reversed", ">=": "subtract", ">": "subtract", "==": "near", "!=": "distance"},
    **{"iff": "near", "xor": "distance", "and": "minimum", "or": "maximum", "implies": "implies"},
    **{"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "not": "negate", "minus": "negate"},
    **{"abs": "abs", "sqrt": "sqrt", "exp": "exp", "pow": "pow"},
}
FILLS = {"prev": math.inf, "s_prev": -math.inf, "next": math.inf, "s_next": -math.inf}


class Instruction(NamedTuple):
    """One operation. inputs: the numbers of earlier instructions. size: the steps it keeps; of `fill` the delay of its
    operand; of `signal` its row. value: of a constant or a fill; the name of a parameter."""

    operation: str
    inputs: tuple[int, ...] = ()
    size: int = 0
    value: float | str = 0.0


@dataclass
class Program:
    """Instructions in order, and those whose values are asked for. delay: of the roots, all aligned to it."""

    instructions: list[Instruction] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    delay: int = 0

    def numbers(self) -> int:
        """How many numbers are kept for each trace."""
        return sum(state_rows(each) for each in self.instructions)


def state_rows(instruction: Instruction) -> int:
    """How many numbers an instruction keeps for each trace."""
    if instruction.operation in ("lag", "largest", "smallest"):
        return instruction.size
    if instruction.operation in ("since", "until"):
        return 2 * instruction.size
    return int(instruction.operation == "latch")


def start_values(instruction: Instruction) -> tuple[float, ...]:
    """What each of an instruction's registers holds before the first step; most instructions have none."""
    if instruction.operation in ("since", "until"):
        return math.inf, -math.inf
    if instruction.operation == "latch":
        return (float(instruction.value),)
    return {"smallest": (math.inf,), "largest": (-math.inf,), "lag": (-math.inf,)}.get(instruction.operation, ())


def compile_program(formulas: list[Formula]) -> Program:
    """One program for several formulas of finite horizon, common parts once."""
    compiler = _Compiler()
    found = [compiler.visit(formula) for formula in formulas]
    program = compiler.program
    program.delay = max((delay for _, delay in found if delay is not None), default=0)
    program.roots = [compiler.lag(number, program.delay - (delay or 0)) for number, delay in found]
    return program


Known = tuple[int, int | None]  # the number of an instruction, and its delay; None: the same at all steps


class _Compiler:
    def __init__(self) -> None:
        self.program = Program()
        self.numbers: dict[Instruction, int] = {}
        self.known: dict[Formula, Known] = {}

    def emit(self, operation: str, inputs: tuple[int, ...] = (), size: int = 0, value: float | str = 0.0) -> int:
        instruction = Instruction(operation, inputs, size, value)
        if instruction not in self.numbers:
            self.numbers[instruction] = len(self.program.instructions)
            self.program.instructions.append(instruction)
        return self.numbers[instruction]

    def lag(self, number: int, steps: int) -> int:
        return self.emit("lag", (number,), steps) if steps else number

    def visit(self, formula: Formula) -> Known:
        for node in _simpler(formula).nodes():
            if node not in self.known:
                self.known[node] = self._node(node, [self.known[child] for child in node.children])
        return self.known[_simpler(formula)]

    def _node(self, node: Formula, operands: list[Known]) -> Known:
        operator = node.operator
        if operator == "signal":
            if node.value not in self.program.signals:
                self.program.signals.append(str(node.value))
            return self.emit("signal", (), self.program.signals.index(str(node.value))), 0
        if operator in ("constant", "parameter"):
            return self.emit("constant", (), 0, node.value if node.value is not None else 0.0), None
        if operator in POINTWISE:
            numbers, delay = self._align(operands)
            return self.emit(POINTWISE[operator], numbers), delay
        return self._temporal(node, [(number, delay or 0) for number, delay in operands])

    def _align(self, operands: list[Known]) -> tuple[tuple[int, ...], int | None]:
        delays = [delay for _, delay in operands if delay is not None]
        latest = max(delays) if delays else None
        aligned = tuple(
            number if delay is None or latest is None else self.lag(number, latest - delay)
            for number, delay in operands
        )
        return aligned, latest

    def _past(self, operand: tuple[int, int], begin: int, fill: float) -> tuple[int, int]:
        """The operand of `begin` steps ago, absent ones filled; and the delay of the operator above."""
        number, delay = operand
        after = max(delay - begin, 0)
        steps = after + begin - delay
        return self.emit("fill", (self.lag(number, steps),), delay + steps, fill), after

    def _future(self, operand: tuple[int, int], fill: float) -> int:
        return self.emit("fill", (operand[0],), operand[1], fill)

    def _temporal(self, node: Formula, operands: list[tuple[int, int]]) -> Known:
        operator, first = node.operator, operands[0]
        minimum = operator in ("historically", "always")
        none = math.inf if minimum else -math.inf
        best = "smallest" if minimum else "largest"
        if operator in ("prev", "s_prev"):
            return self._past(first, 1, FILLS[operator])
        if operator in ("next", "s_next"):
            return self._future(first, FILLS[operator]), first[1] + 1
        if operator in ("rise", "fall"):
            before, delay = self._past(first, 1, -math.inf if operator == "rise" else math.inf)
            (before, now), both = self._align([(before, delay), first])
            turned = (
                (self.emit("negate", (before,)), now) if operator == "rise" else (before, self.emit("negate", (now,)))
            )
            return self.emit("minimum", turned), both
        if operator in ("once", "historically"):
            number, delay = self._past(first, node.begin, none)
            if node.end is not None:
                return self._window(best, number, node.end - node.begin + 1), delay
            other = self.emit("constant", (), 0, -none)
            return self.emit("latch", (number, other) if minimum else (other, number), 1, none), delay
        if operator in ("eventually", "always"):
            assert node.end is not None
            return self._window(best, self._future(first, none), node.end - node.begin + 1), first[1] + node.end
        (p, q), delay_of_both = self._align(list(operands))
        delay = delay_of_both or 0
        p, q = (self.emit("fill", (each,), delay, fill) for each, fill in ((p, math.inf), (q, -math.inf)))
        if operator == "since" and node.end is None:
            return self.emit("latch", (p, q), 1, -math.inf), delay
        assert node.end is not None
        return self.emit(operator, (p, q), node.end + 1), delay + (node.end if operator == "until" else 0)

    def _window(self, operation: str, number: int, width: int) -> int:
        return number if width == 1 else self.emit(operation, (number,), width)


def _simpler(formula: Formula) -> Formula:
    """The formula without lower bounds at since and until."""
    made: dict[Formula, Formula] = {}
    for node in formula.nodes():
        children = tuple(made[child] for child in node.children)
        begin, end = node.begin, node.end
        new = Formula(node.operator, children, begin, end, node.value) if children else node
        if node.operator in ("since", "until"):
            p, q = children
            rest = None if end is None else end - begin
            new = q if rest == 0 else (since if node.operator == "since" else until)(p, q, 0, rest)
            if begin:
                held, moved = (historically, once) if node.operator == "since" else (always, eventually)
                new = held(p, 0, begin - 1) & moved(new, begin, begin)
        made[node] = new
    return made[formula]
