"""Modular arithmetic without brackets: digits and + - *, modulo 5, a product before a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy

from latchwork.tasks.automaton import Automaton
from latchwork.tasks.task import IGNORE, Split

MODULUS = 5
SYMBOLS = "01234+-*"
PLUS, MINUS, TIMES = range(MODULUS, MODULUS + 3)


class ModularArithmetic(Automaton):
    """Digits 0..4 are themselves, + - * are 5, 6, 7; digits and operators alternate, and a digit comes first.

    The answer is the value, modulo 5, of what has been read, asked for at each digit: there it is an expression.
    """

    def __init__(self, *, splits: Mapping[str, Split] | None = None) -> None:
        states = 2 * MODULUS * MODULUS
        successor, output = numpy.full((states, MODULUS + 3), -1), numpy.full(states, IGNORE)
        for total in range(MODULUS):  # of the terms before the last one; `term` is the last one as far as it is read
            for term in range(MODULUS):
                for digit in range(MODULUS):
                    successor[_state(True, total, term), digit] = _state(False, total, term * digit)
                after_digit = _state(False, total, term)
                output[after_digit] = (total + term) % MODULUS
                successor[after_digit, PLUS] = _state(True, total + term, 1)
                successor[after_digit, MINUS] = _state(True, total + term, -1)
                successor[after_digit, TIMES] = _state(True, total, term)
        super().__init__(
            successor, output, start=_state(True, 0, 1), name="modular_arithmetic", splits=splits, symbol_names=SYMBOLS
        )

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Cut into terms and multiply each out, from the start at each digit."""
        return [_value(tokens[: t + 1]) if t % 2 == 0 else IGNORE for t in range(len(tokens))]


def _state(wants_digit: bool, total: int, term: int) -> int:
    return (wants_digit * MODULUS + total % MODULUS) * MODULUS + term % MODULUS


def _value(expression: Sequence[int]) -> int:
    text = "".join(SYMBOLS[token] for token in expression).replace("-", "+-")
    value = 0
    for term in text.split("+"):
        product = -1 if term.startswith("-") else 1
        for digit in term.removeprefix("-").split("*"):
            product *= int(digit)
        value += product
    return value % MODULUS
