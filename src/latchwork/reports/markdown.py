"""Figures in Markdown pages: tables, and text between marks that a command replaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts.

    >>> print(table(["task", "right"], [["parity", "5 of 5"]]))
    | task | right |
    | --- | --- |
    | parity | 5 of 5 |
    """
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])


def between(marks: tuple[str, str], text: str, figures: str) -> str:
    """The text with these figures in place of what was between its marks."""
    begin, end = marks
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{figures}\n\n{end}{rest.split(end)[1]}"
