"""Acceptors in AT&T's text format, as OpenFst, foma and pynini write them."""

from __future__ import annotations

from pathlib import Path

import numpy

from latchwork.files import read_text

Array = numpy.ndarray
MOST_BYTES = 1 << 26  # of a file
MOST_STATES, MOST_SYMBOLS, MOST_ENTRIES = 100_000, 10_000, 1 << 24
LONGEST = 100  # characters of a symbol's name


def read_att(path: Path) -> tuple[Array, Array, list[str]]:
    """The successors (states, symbols), whether each state accepts (states,), and the symbols, sorted.

    A line is `source target symbol` or `source target symbol symbol`, both symbols the same; or `state`, which accepts.
    State 0 is the start. A missing edge leads to one more state, the last, which rejects for good. Fields are split at
    tabs where there are any, so that a symbol may be a space; else at white space.
    """
    edges: dict[tuple[int, str], int] = {}
    accepting: set[int] = set()
    symbols: set[str] = set()
    most = 0
    for number, line in enumerate(read_text(path, MOST_BYTES).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        fields = line.split("\t") if "\t" in line else line.split()
        states = [_state(each, where) for each in fields[:2]]
        most = max(most, *states)
        if len(fields) == 1:
            accepting.add(states[0])
            continue
        if len(fields) not in (3, 4) or fields[2] != fields[-1]:
            raise ValueError(
                f"{where} must be a state, or a source, a target and a symbol, which may come twice; got {line!r:.100}"
            )
        source, target, symbol = *states, fields[2]
        if not 0 < len(symbol) <= LONGEST:
            raise ValueError(f"{where}: a symbol must have 1 to {LONGEST} characters; got {symbol!r:.100}")
        if edges.setdefault((source, symbol), target) != target:
            raise ValueError(
                f"{where}: state {source} has two edges by {symbol!r}: the automaton must be deterministic"
            )
        symbols.add(symbol)
        if len(symbols) > MOST_SYMBOLS:
            raise ValueError(f"{path} must have at most {MOST_SYMBOLS:,} symbols; it has more")
    if not symbols:
        raise ValueError(f"{path} must have at least one edge: source, target, symbol, symbol; it has none")
    names = sorted(symbols)
    if (most + 2) * len(names) > MOST_ENTRIES:
        raise ValueError(
            f"{path} must make a table of at most {MOST_ENTRIES:,} entries; it has {most + 1:,} states and "
            f"{len(names):,} symbols"
        )
    place = {name: k for k, name in enumerate(names)}
    transitions = numpy.full((most + 2, len(names)), most + 1)
    for (source, symbol), target in edges.items():
        transitions[source, place[symbol]] = target
    accepts = numpy.zeros(most + 2, int)
    accepts[sorted(accepting)] = 1
    return transitions, accepts, names


def _state(text: str, where: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10) or int(text) >= MOST_STATES:
        raise ValueError(f"{where}: a state must be a whole number below {MOST_STATES:,}; got {text!r:.40}")
    return int(text)
