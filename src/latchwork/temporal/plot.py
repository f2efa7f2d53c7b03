"""A page that shows a trace: its signals, the robustness of each subformula over time, and where it is violated.

One HTML file without anything to load. Long traces are drawn by the lowest and highest value of each column of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from itertools import pairwise

import torch
from torch import Tensor

from latchwork.temporal.core import TooLarge
from latchwork.temporal.formula import Formula
from latchwork.temporal.monitor import first_violation
from latchwork.temporal.offline import TERMS, subformulas

WIDTH, HEIGHT, LEFT, GAP = 900, 90, 70, 14
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1010px; padding: 0 1rem; color: #1b1b1b; }
h1 { font-size: 1.2rem; } h2 { font-size: .95rem; font-weight: 600; margin: 1.1rem 0 .1rem; }
code { font: .92em ui-monospace, monospace; } svg { width: 100%; height: auto; display: block; }
.line { fill: none; stroke: #2563a8; stroke-width: 1.4; } .zero { stroke: #888; stroke-dasharray: 3 3; }
.frame { fill: none; stroke: #ccc; } .bad { fill: #d9433020; } .first { stroke: #d94330; stroke-width: 1.5; }
text { font: 11px system-ui, sans-serif; fill: #555; } .no { color: #b3261e; } .yes { color: #1c7c3c; }
@media (prefers-color-scheme: dark) { body { background: #16181b; color: #e6e6e6; } .line { stroke: #7db4f0; }
.frame { stroke: #444; } text { fill: #aaa; } .bad { fill: #ff6b5940; } .no { color: #ff8a7a; } .yes { color: #7fd99a; }
}
"""


def page(formula: Formula, trace: Mapping[str, Tensor], title: str) -> str:
    """The page for one trace, tensors (T,) by name."""
    values = subformulas(formula, trace)
    shown = [node for node in formula.nodes() if node.operator not in TERMS or node is formula]
    bad = (values[formula] < 0).tolist()
    endless = formula.horizon == math.inf
    violated = bad[0] if endless and bad else True in bad
    try:
        first = first_violation(formula, trace) if violated else None
    except TooLarge:  # past operators over future ones
        first = None
    where = f" first at step {first}" if first is not None else " by its end"
    answer = f'<p class="no">violated{where}</p>' if violated else '<p class="yes">satisfied</p>'
    parts = [f"<h1>{escape(title)}</h1><p><code>{escape(str(formula))}</code></p>{answer}"]
    for name in formula.names:
        parts.append(f"<h2>signal <code>{escape(name)}</code></h2>{_chart(trace[name], None, first, name, zero=False)}")
    for node in reversed(shown):
        of = bad if node is formula else None
        label = f"robustness of {node}"
        parts.append(f"<h2><code>{escape(str(node))}</code></h2>{_chart(values[node], of, first, label, zero=True)}")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _chart(values: Tensor, bad: list[bool] | None, first: int | None, label: str, *, zero: bool) -> str:
    steps = len(values)
    finite = values[values.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (-1.0, 1.0)
    low, high = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
    low, high = (low - 0.5, high + 0.5) if high - low < 1e-12 else (low, high)

    def x(t: float) -> float:
        return LEFT + t / max(1, steps - 1) * (WIDTH - LEFT)

    def y(value: float) -> float:
        return GAP / 2 + (1 - (min(max(value, low), high) - low) / (high - low)) * HEIGHT

    parts = [f'<rect class="frame" x="{LEFT}" y="{GAP / 2}" width="{WIDTH - LEFT}" height="{HEIGHT}"/>']
    for a, b in _runs(bad or []):
        wide = max(1.0, x(b) - x(a))
        parts.append(f'<rect class="bad" x="{x(a):.1f}" y="{GAP / 2}" width="{wide:.1f}" height="{HEIGHT}"/>')
    if zero:
        parts.append(f'<line class="zero" x1="{LEFT}" x2="{WIDTH}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>')
    points = " ".join(f"{x(t):.1f},{y(value):.1f}" for t, value in _outline(values))
    parts.append(f'<polyline class="line" points="{points}"/>')
    if first is not None:
        parts.append(
            f'<line class="first" x1="{x(first):.1f}" x2="{x(first):.1f}" y1="{GAP / 2}" y2="{HEIGHT + GAP / 2}"/>'
        )
    for value, at in ((high, GAP / 2 + 9), (low, HEIGHT + GAP / 2)):
        parts.append(f'<text x="{LEFT - 6}" y="{at}" text-anchor="end">{value:.4g}</text>')
    for t, anchor in ((0, "start"), (steps - 1, "end")):
        parts.append(f'<text x="{x(t):.1f}" y="{HEIGHT + GAP + 5}" text-anchor="{anchor}">{t}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH + 4} {HEIGHT + GAP + 10}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )


def _outline(values: Tensor) -> list[tuple[int, float]]:
    """Points to draw: all of them, or of each column of pixels the lowest and the highest; without NaN."""
    steps = len(values)
    if steps <= 2 * WIDTH:
        points = list(enumerate(values.tolist()))
    else:
        edges = torch.linspace(0, steps, WIDTH + 1).long().tolist()
        points = []
        for a, b in pairwise(edges):
            block = values[a:b].nan_to_num(0.0, math.inf, -math.inf)
            low, high = int(block.argmin()) + a, int(block.argmax()) + a
            points += [(t, float(values[t])) for t in sorted({low, high})]
    return [(t, value) for t, value in points if value == value]


def _runs(flags: list[bool]) -> list[tuple[int, int]]:
    """Where flags are true, as (first, last), neighbours joined."""
    runs: list[tuple[int, int]] = []
    for t, flag in enumerate(flags):
        if flag:
            runs[-1:] = [(runs[-1][0], t)] if runs and runs[-1][1] == t - 1 else [*runs[-1:], (t, t)]
    return runs
