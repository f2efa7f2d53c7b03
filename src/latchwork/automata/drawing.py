"""Pictures of machines: the text that Graphviz reads, and an SVG with or without Graphviz."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from html import escape
from math import atan2, cos, hypot, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latchwork.automata.machine import Machine

RADIUS = 18  # of a state, in pixels
SPACE = 90  # between neighbours on the circle
STYLE = (
    "circle{fill:#fff;stroke:#222}path{fill:none;stroke:#666}"
    "text{font:11px sans-serif;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:3px}"
)


def dot_text(machine: Machine, symbols: Sequence[str] | None = None) -> str:
    """A directed graph; each arrow carries its symbols with their outputs, as symbol/output."""
    lines = ["digraph machine {", "  rankdir=LR;", "  node [shape=circle];", "  start [shape=point];"]
    lines.append(f"  start -> {machine.start};")
    for (state, following), labels in _arrows(machine, symbols).items():
        text = ", ".join(labels).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  {state} -> {following} [label="{text}"];')
    return "\n".join([*lines, "}", ""])


def draw(machine: Machine, path: Path, symbols: Sequence[str] | None = None) -> None:
    """Write an SVG file."""
    if path.suffix != ".svg":
        raise ValueError(f"path must end in .svg; got {str(path)!r}")
    if program := shutil.which("dot"):
        text = dot_text(machine, symbols)
        done = subprocess.run([program, "-Tsvg"], input=text, capture_output=True, text=True, check=True)
        path.write_text(done.stdout, encoding="utf-8")
    else:
        path.write_text(_circle(machine, symbols), encoding="utf-8")


def _arrows(machine: Machine, symbols: Sequence[str] | None) -> dict[tuple[int, int], list[str]]:
    """From each state to each of its successors: the labels."""
    names = [str(k) for k in range(machine.n_symbols)] if symbols is None else list(symbols)
    if len(names) != machine.n_symbols:
        raise ValueError(f"symbols must be {machine.n_symbols} names; got {len(names)}")
    found: dict[tuple[int, int], list[str]] = {}
    for state, (following, outputs) in enumerate(
        zip(machine.transitions.tolist(), machine.outputs.tolist(), strict=True)
    ):
        for name, after, output in zip(names, following, outputs, strict=True):
            found.setdefault((state, after), []).append(f"{name}/{output}")
    return found


def _circle(machine: Machine, symbols: Sequence[str] | None) -> str:
    """States on a circle, clockwise from the left; arrows bent to their left, so that there and back are two."""
    states = machine.n_states
    ring = max(SPACE, SPACE * states / (2 * pi)) if states > 1 else 0.0
    middle = ring + 4 * RADIUS + 30
    angles = [pi + 2 * pi * state / states for state in range(states)]
    places = [(middle + ring * cos(angle), middle + ring * sin(angle)) for angle in angles]
    arrows, texts = [], []

    def arrow(x0: float, y0: float, bend: str, x1: float, y1: float) -> None:
        arrows.append(f'<path d="M{x0:.1f},{y0:.1f} {bend} {x1:.1f},{y1:.1f}" marker-end="url(#head)"/>')

    def text(x: float, y: float, words: str) -> None:
        texts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}">{escape(words)}</text>')

    for (state, following), labels in _arrows(machine, symbols).items():
        (x0, y0), (x1, y1) = places[state], places[following]
        if state == following:  # a loop, away from the middle
            out = angles[state]
            ends = [(x0 + RADIUS * cos(out + turn), y0 + RADIUS * sin(out + turn)) for turn in (-0.5, 0.5)]
            far = [(x0 + 3 * RADIUS * cos(out + turn), y0 + 3 * RADIUS * sin(out + turn)) for turn in (-0.5, 0.5)]
            arrow(*ends[0], f"C{far[0][0]:.1f},{far[0][1]:.1f} {far[1][0]:.1f},{far[1][1]:.1f}", *ends[1])
            text(x0 + 3.3 * RADIUS * cos(out), y0 + 3.3 * RADIUS * sin(out), ", ".join(labels))
        else:
            distance, angle = hypot(x1 - x0, y1 - y0), atan2(y1 - y0, x1 - x0)
            top_x = (x0 + x1) / 2 + 0.2 * distance * sin(angle)
            top_y = (y0 + y1) / 2 - 0.2 * distance * cos(angle)
            leave, arrive = atan2(top_y - y0, top_x - x0), atan2(top_y - y1, top_x - x1)
            x0, y0 = x0 + RADIUS * cos(leave), y0 + RADIUS * sin(leave)
            x1, y1 = x1 + RADIUS * cos(arrive), y1 + RADIUS * sin(arrive)
            arrow(x0, y0, f"Q{top_x:.1f},{top_y:.1f}", x1, y1)
            text((x0 + 2 * top_x + x1) / 4, (y0 + 2 * top_y + y1) / 4, ", ".join(labels))
    x, y, out = *places[machine.start], angles[machine.start]
    side = out + 1.2  # beside the loop
    tip = x + RADIUS * cos(side), y + RADIUS * sin(side)
    arrow(x + 2.5 * RADIUS * cos(side), y + 2.5 * RADIUS * sin(side), "L", *tip)
    circles = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>' for x, y in places]
    for state, (x, y) in enumerate(places):
        text(x, y, str(state))
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" style="fill:#666"/></marker></defs>'
    )
    size = f"{2 * middle:.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" viewBox="0 0 {size} {size}">',
            f"<style>{STYLE}</style>{head}",
            *arrows,
            *circles,
            *texts,
            "</svg>",
            "",
        ]
    )
