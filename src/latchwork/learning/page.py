"""A page about what was learnt: the sentence, the machine, what was tried, what it contradicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from latchwork.markup import Markup, element, join

if TYPE_CHECKING:
    from latchwork.learning.learned import Learned

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #ccc;padding:.2rem .6rem;text-align:left}"
    "svg{max-width:100%;height:auto}"
)
MOST = 200  # rows of a table


def page(learned: Learned) -> str:
    """A whole page, without scripts and without anything from elsewhere."""
    head = element(
        "head", element("meta", charset="utf-8"), element("title", "What was learnt"), element("style", Markup(STYLE))
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', Markup(body(learned))), lang='en')}\n"


def body(learned: Learned) -> str:
    """The part of the page that a notebook shows."""
    names, machine = learned.names, learned.machine
    picture = learned.svg()
    parts = [element("h1", "What was learnt"), element("p", str(learned))]
    if picture is not None:
        parts += [element("h2", "The machine"), element("figure", Markup(picture))]
        labels = ", ".join(f"{k} is {each}" for k, each in enumerate(names.outputs))
        parts.append(element("p", f"Arrows carry symbol/output; output {labels}, {names.undecided} is undecided."))
    header = ["state", *(str(each) for each in names.symbols)]
    rows = [
        [f"{state}{' (start)' if state == machine.start else ''}"]
        + [
            f"{names.output(int(machine.outputs[state, symbol]))}, to {machine.transitions[state, symbol]}"
            for symbol in range(machine.n_symbols)
        ]
        for state in range(machine.n_states)
    ]
    parts += [
        element("h2", "Its table"),
        element("p", "What it answers at each symbol, and the next state."),
        _table(header, rows),
    ]
    if learned.differences:
        rows = [[" ".join(map(str, each["word"])), each["merging"], each["network"]] for each in learned.differences]
        parts += [element("h2", "Where merging and training differ"), _table(["sequence", "merging", "network"], rows)]
    if learned.undecided:
        rows = [[" ".join(map(str, word))] for word in learned.undecided]
        parts += [element("h2", "What the traces do not say"), _table(["after"], rows)]
    if learned.contradicted:
        parts += [
            element("h2", "Contradicted traces"),
            element(
                "p",
                ", ".join(map(str, learned.contradicted[:MOST]))
                + (", ..." if len(learned.contradicted) > MOST else ""),
            ),
        ]
    keys = list(dict.fromkeys(key for each in learned.log for key in each))
    rows = [[each.get(key, "") for key in keys] for each in learned.log]
    parts += [element("h2", "What was tried"), _table(keys, rows)]
    return join(parts, "\n")


def _table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    shown = list(rows)
    lines = [element("tr", *(element("td", each) for each in row)) for row in shown[:MOST]]
    if len(shown) > MOST:
        lines.append(element("tr", element("td", f"and {len(shown) - MOST} more")))
    return element("table", element("tr", *(element("th", each) for each in header)), *lines)
