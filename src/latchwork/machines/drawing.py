"""Pictures of machines: the text that Graphviz reads, and an SVG with or without Graphviz."""

from __future__ import annotations

import shutil
import subprocess
from html import escape
from math import atan2, cos, hypot, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING

from latchwork.files import write_text

if TYPE_CHECKING:
    from latchwork.machines.machine import Machine

ACCEPT = 1  # the output of a word that is in the language
LONGEST = 40  # characters of a name
RADIUS = 18  # of a state, in pixels
SPACE = 90  # between neighbours on the circle
LINE, LETTER = 13, 6.2  # the height of a line of text and the width of a letter, in pixels
MOST_SECONDS = 60  # that Graphviz may take
STYLE = (
    "circle{fill:#fff;stroke:#222}path{fill:none;stroke:#666}"
    "text{font:11px Helvetica,Arial,sans-serif;paint-order:stroke;stroke:#fff;stroke-width:3px}"
)
DOT_STYLE = (
    '  graph [rankdir=LR, nodesep=0.4, ranksep=0.6, fontname="Helvetica,Arial"];',
    '  node [shape=circle, width=0.45, margin=0.03, fontname="Helvetica,Arial", fontsize=12];',
    '  edge [color="#666666", arrowsize=0.7, fontname="Helvetica,Arial", fontsize=11];',
    "  start [shape=point, width=0.08];",
)


def dot_text(machine: Machine) -> str:
    """A directed graph; each arrow carries its symbols with their outputs, as symbol/output.

    A machine that says whether a word is in a language is drawn as an automaton: accepting states are double circles,
    and arrows carry symbols alone. Its states are split where one is both accepting and rejecting (`Machine.moore`).
    """
    drawn, accepting = _acceptor(machine)
    lines = ["digraph machine {", *DOT_STYLE, *(f"  {state} [shape=doublecircle];" for state in sorted(accepting))]
    lines.append(f"  start -> {drawn.start};")
    for (state, following), labels in _arrows(drawn).items():
        text = "\\n".join(each.replace("\\", "\\\\").replace('"', '\\"') for each in labels)
        lines.append(f'  {state} -> {following} [label="{text}"];')
    return "\n".join([*lines, "}", ""])


def draw(machine: Machine, path: Path) -> None:
    """Write an SVG file."""
    if path.suffix != ".svg":
        raise ValueError(f"path must end in .svg; got {str(path)!r}")
    write_text(path, svg_text(machine))


def svg_text(machine: Machine) -> str:
    """The picture as SVG: by the program `dot` where there is one, else with the states on a circle."""
    program = shutil.which("dot")
    return _circle(machine) if program is None else _graphviz(program, machine)


def _acceptor(machine: Machine) -> tuple[Machine, set[int]]:
    """The machine to draw, and the states to draw with double circles."""
    if not machine.is_acceptor:
        return machine, set()
    split = machine.moore()
    return split, set(split.transitions[split.outputs == ACCEPT].tolist())


def _graphviz(program: str, machine: Machine) -> str:
    text = dot_text(machine)
    try:
        done = subprocess.run(
            [program, "-Tsvg"], input=text, capture_output=True, text=True, check=True, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"Graphviz did not place {machine.n_states} states in {MOST_SECONDS} s: draw a smaller machine (minimise "
            "it first), or lay out the text of to_dot by another of its programs, such as sfdp"
        ) from None
    return done.stdout


def _arrows(machine: Machine) -> dict[tuple[int, int], list[str]]:
    """From each state to each of its successors: a label for each output, such as "a, b/0"; an acceptor's without."""
    names = [_shown(machine.symbol(k)) for k in range(machine.n_symbols)]
    found: dict[tuple[int, int], dict[int, list[int]]] = {}
    for state, (following, outputs) in enumerate(
        zip(machine.transitions.tolist(), machine.outputs.tolist(), strict=True)
    ):
        for symbol, (after, output) in enumerate(zip(following, outputs, strict=True)):
            found.setdefault((state, after), {}).setdefault(output, []).append(symbol)
    ends = ["" if machine.is_acceptor else f"/{_shown(machine.output(k))}" for k in range(machine.n_outputs)]
    return {
        arrow: [_several(names, numbers) + ends[output] for output, numbers in by_output.items()]
        for arrow, by_output in found.items()
    }


def _shown(name: str) -> str:
    """A name without what cannot be printed, and not without end."""
    name = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _several(names: list[str], numbers: list[int]) -> str:
    """The names of these symbols; three or more that follow each other, in number and in name, as first and last.

    >>> _several(list("abcdefg"), [0, 2, 3, 4, 5]), _several(["login", "logout", "pay"], [0, 1, 2])
    ('a, c…f', 'login, logout, pay')
    """
    words, first = [], 0
    for k, number in enumerate(numbers):
        if k + 1 < len(numbers) and numbers[k + 1] == number + 1 and _follows(names[number], names[number + 1]):
            continue
        run = [names[each] for each in numbers[first : k + 1]]
        words += [f"{run[0]}…{run[-1]}"] if len(run) > 2 else run
        first = k + 1
    return ", ".join(words)


def _follows(one: str, two: str) -> bool:
    """Whether a reader knows that nothing comes between two names: whole numbers, letters."""
    if one.isdecimal() and two.isdecimal() and len(two) < 10:
        return int(two) == int(one) + 1
    return len(one) == len(two) == 1 and one.isalnum() and two.isalnum() and ord(two) == ord(one) + 1


def _circle(machine: Machine) -> str:
    """States on a circle, clockwise from the left; arrows bent to their left, so that there and back are two."""
    machine, accepting = _acceptor(machine)
    states = machine.n_states
    ring = max(SPACE, SPACE * states / (2 * pi)) if states > 1 else 0.0
    angles = [pi + 2 * pi * state / states for state in range(states)]
    places = [(ring * cos(angle), ring * sin(angle)) for angle in angles]
    arrows, texts, reach = [], [], [(x + side, y + side) for x, y in places for side in (-RADIUS, RADIUS)]

    def arrow(x0: float, y0: float, bend: str, x1: float, y1: float) -> None:
        arrows.append(f'<path d="M{x0:.1f},{y0:.1f} {bend} {x1:.1f},{y1:.1f}" marker-end="url(#head)"/>')
        reach.append((x0, y0))

    def text(x: float, y: float, lines: list[str], lean: float = 0.0) -> None:
        """Lines of text around (x, y); to the right of it if lean > 0, to the left if lean < 0."""
        width, anchor = max(map(len, lines)) * LETTER, "start" if lean > 0.3 else "end" if lean < -0.3 else "middle"
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        top = y - LINE * len(lines) / 2
        reach.extend([(left, top), (left + width, top + LINE * len(lines))])
        for k, words in enumerate(lines):
            baseline = top + LINE * (k + 0.8)
            texts.append(f'<text x="{x:.1f}" y="{baseline:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    for (state, following), labels in _arrows(machine).items():
        (x0, y0), (x1, y1) = places[state], places[following]
        if state == following:  # a loop, away from the middle
            out = angles[state]
            ends = [(x0 + RADIUS * cos(out + turn), y0 + RADIUS * sin(out + turn)) for turn in (-0.5, 0.5)]
            far = [(x0 + 3 * RADIUS * cos(out + turn), y0 + 3 * RADIUS * sin(out + turn)) for turn in (-0.5, 0.5)]
            arrow(*ends[0], f"C{far[0][0]:.1f},{far[0][1]:.1f} {far[1][0]:.1f},{far[1][1]:.1f}", *ends[1])
            tall = LINE * (len(labels) - 1) / 2 * sin(out)
            text(x0 + 2.9 * RADIUS * cos(out), y0 + 2.9 * RADIUS * sin(out) + tall, labels, cos(out))
        else:
            distance, angle = hypot(x1 - x0, y1 - y0), atan2(y1 - y0, x1 - x0)
            top_x = (x0 + x1) / 2 + 0.2 * distance * sin(angle)
            top_y = (y0 + y1) / 2 - 0.2 * distance * cos(angle)
            leave, arrive = atan2(top_y - y0, top_x - x0), atan2(top_y - y1, top_x - x1)
            x0, y0 = x0 + RADIUS * cos(leave), y0 + RADIUS * sin(leave)
            x1, y1 = x1 + RADIUS * cos(arrive), y1 + RADIUS * sin(arrive)
            arrow(x0, y0, f"Q{top_x:.1f},{top_y:.1f}", x1, y1)
            text((x0 + 2 * top_x + x1) / 4, (y0 + 2 * top_y + y1) / 4, labels)
    x, y, out = *places[machine.start], angles[machine.start]
    side = out + 1.2  # beside the loop
    tip = x + RADIUS * cos(side), y + RADIUS * sin(side)
    arrow(x + 2.5 * RADIUS * cos(side), y + 2.5 * RADIUS * sin(side), "L", *tip)
    circles = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
        for state, (x, y) in enumerate(places)
        for radius in ([RADIUS, RADIUS - 4] if state in accepting else [RADIUS])
    ]
    for state, (x, y) in enumerate(places):
        text(x, y, [str(state)])
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" style="fill:#666"/></marker></defs>'
    )
    left, top = (min(each) - 8 for each in zip(*reach, strict=True))
    width, height = (max(each) - least + 8 for each, least in zip(zip(*reach, strict=True), (left, top), strict=True))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}">',
            f"<style>{STYLE}</style>{head}",
            *arrows,
            *circles,
            *texts,
            "</svg>",
            "",
        ]
    )
