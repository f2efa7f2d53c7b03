"""Temporal logic over signals: robustness of traces, monitors, machines and learnt thresholds, on the recurrence."""

from latchwork.temporal.builders import (
    always,
    equal,
    eventually,
    fall,
    historically,
    iff,
    next_,
    once,
    parameter,
    prev,
    rise,
    signals,
    since,
    unequal,
    until,
    xor,
)
from latchwork.temporal.formula import Formula, constant
from latchwork.temporal.grammar import ParseError, parse

__all__ = [
    "Formula",
    "ParseError",
    "always",
    "constant",
    "equal",
    "eventually",
    "fall",
    "historically",
    "iff",
    "next_",
    "once",
    "parameter",
    "parse",
    "prev",
    "rise",
    "signals",
    "since",
    "unequal",
    "until",
    "xor",
]
