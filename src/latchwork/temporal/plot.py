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
from latchwork.temporal.formula import TERMS, Formula
from latchwork.temporal.monitor import first_violation
from latchwork.temporal.offline import subformulas

WIDTH, HEIGHT = 900, 90  # of a chart's own units: it is stretched to the width of the page
STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --quiet: #59636e; --line: #d5dae0; --data: #0b62b8;
  --bad: #b3261e; --bad-paper: #fbe9e7; --good: #00664a; --good-paper: #e3f3ec; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0e1116; --ink: #e8edf2; --quiet: #9aa5b1; --line: #343b45; --data: #6cb2ff; --bad: #ff9c8f;
    --bad-paper: #4a2420; --good: #5fd0a5; --good-paper: #10281f; }
}
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 3rem;
  background: var(--paper); color: var(--ink); }
h1 { font-size: 1.25rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin: 2rem 0 0; }
h3 { font-size: .9rem; font-weight: 400; margin: 1rem 0 .2rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; } .quiet { color: var(--quiet); font-size: .875rem; }
code { font: .95em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.answer { display: inline-block; padding: .1rem .7rem; border-radius: 1rem; font-weight: 600; }
.no { color: var(--bad); background: var(--bad-paper); } .yes { color: var(--good); background: var(--good-paper); }
.chart { display: grid; grid-template-columns: 3.75rem minmax(0, 1fr); column-gap: .4rem; font-size: .75rem;
  line-height: 1; color: var(--quiet); font-variant-numeric: tabular-nums; }
.scale, .steps { display: flex; justify-content: space-between; } .scale { flex-direction: column; text-align: right; }
.steps { grid-column: 2; padding-top: .25rem; }
svg { display: block; width: 100%; height: 5.6rem; border: 1px solid var(--line); }
svg * { vector-effect: non-scaling-stroke; }
.line { fill: none; stroke: var(--data); stroke-width: 1.5; } .zero { stroke: var(--quiet); stroke-dasharray: 3 3; }
.bad { fill: var(--bad-paper); } .first { stroke: var(--bad); stroke-width: 2; }
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
    kind, answer = ("no", f"✗ violated{where}") if violated else ("yes", "✓ satisfied")
    parts = [f"<h1>{escape(title)}</h1><p><code>{escape(str(formula))}</code></p>"]
    parts.append(f'<p class="answer {kind}">{answer}</p><h2>Signals</h2>')
    for name in formula.names:
        parts.append(f"<h3><code>{escape(name)}</code></h3>{_chart(trace[name], None, first, name, zero=False)}")
    legend = "Below the dashed zero a formula is violated, above it holds."
    legend += " Shaded: where the whole formula is violated." if violated else ""
    legend += " Red line: where that is certain first." if first is not None else ""
    parts.append(f'<h2>Robustness</h2><p class="quiet">{legend}</p>')
    for node in reversed(shown):
        of = bad if node is formula else None
        label = f"robustness of {node}"
        parts.append(f"<h3><code>{escape(str(node))}</code></h3>{_chart(values[node], of, first, label, zero=True)}")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _chart(values: Tensor, bad: list[bool] | None, first: int | None, label: str, *, zero: bool) -> str:
    steps = len(values)
    finite = values[values.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (-1.0, 1.0)
    low, high = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
    low, high = (low - 0.5, high + 0.5) if high - low < 1e-12 else (low, high)

    def x(t: float) -> float:
        return t / max(1, steps - 1) * WIDTH

    def y(value: float) -> float:
        return 2 + (1 - (min(max(value, low), high) - low) / (high - low)) * (HEIGHT - 4)

    parts = []
    for a, b in _runs(bad or []):
        wide = max(1.0, x(b) - x(a))
        parts.append(f'<rect class="bad" x="{x(a):.1f}" y="0" width="{wide:.1f}" height="{HEIGHT}"/>')
    if zero:
        parts.append(f'<line class="zero" x1="0" x2="{WIDTH}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>')
    points = " ".join(f"{x(t):.1f},{y(value):.1f}" for t, value in _outline(values))
    parts.append(f'<polyline class="line" points="{points}"/>')
    if first is not None:
        parts.append(f'<line class="first" x1="{x(first):.1f}" x2="{x(first):.1f}" y1="0" y2="{HEIGHT}"/>')
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )
    return (
        f'<div class="chart"><div class="scale"><span>{high:.4g}</span><span>{low:.4g}</span></div>{picture}'
        f'<div class="steps"><span>step 0</span><span>{steps - 1}</span></div></div>'
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
