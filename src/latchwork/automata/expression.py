"""Regular expressions, as the package automata-lib reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automata.fa.nfa import NFA

RESERVED = "()|*+?.&^{}, "  # what is no letter in a regular expression


def parse(pattern: str, alphabet: str) -> NFA:
    """The nondeterministic automaton of an expression over these letters."""
    if not alphabet or len({*alphabet, *RESERVED}) < len(alphabet) + len(RESERVED):
        raise ValueError(f"alphabet must be letters, each once and none of {RESERVED!r}; got {alphabet!r}")
    try:
        from automata.base.exceptions import AutomatonException, RegexException
        from automata.fa.nfa import NFA
    except ImportError as error:
        raise ImportError("a regular expression needs automata-lib: pip install 'latchwork[automata]'") from error
    try:
        return NFA.from_regex(pattern, input_symbols=set(alphabet))
    except (AutomatonException, RegexException) as error:
        raise ValueError(f"pattern must be a regular expression over {alphabet!r}; got {pattern!r}: {error}") from error
