"""Draws docs/_static/latch.svg, the README's picture, with the library's own recurrence: python docs/pictures.py"""

from pathlib import Path

import matplotlib
import torch

matplotlib.use("svg")
from matplotlib import pyplot as plt

from latchwork import minmax_scan

# Colour-blind readers tell them apart too. On white and on black each has a contrast of about 4.
GREY, BLUE, ORANGE, GREEN = "#737b87", "#1580c8", "#cf5f10", "#0b8f69"


def draw(path: Path) -> None:
    """A latch is set, holds under noise, is set higher, holds, and is reset."""
    torch.manual_seed(4)
    steps = 120
    s = -0.75 + 0.18 * torch.rand(steps)
    r = 0.85 + 0.12 * torch.rand(steps)
    s[15], s[55], r[95] = 0.2, 0.65, -0.3
    x = minmax_scan(r.view(1, -1, 1), s.view(1, -1, 1), torch.full((1,), -0.5))[0, :, 0]
    plt.rcParams.update({"svg.hashsalt": "latchwork", "font.size": 13, "text.color": GREY, "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(7.2, 2.9))
    time = range(steps)
    axes.step(time, r, where="post", color=ORANGE, linewidth=1)
    axes.step(time, s, where="post", color=GREEN, linewidth=1)
    axes.step(time, x, where="post", color=BLUE, linewidth=3)
    for step, y, text, side in [(14, -0.15, "set", "right"), (54, 0.42, "set", "right"), (97.5, 0.1, "reset", "left")]:
        axes.annotate(text, (step, y), ha=side, va="center", color=GREY)
    for step, y in [(35, 0.1), (75, 0.55)]:
        axes.annotate("holds, bit for bit", (step, y), ha="center", va="top", color=BLUE)
    for value, name, color in [(r[-1], "r: cap", ORANGE), (x[-1], "x: state", BLUE), (s[-1], "s: floor", GREEN)]:
        axes.annotate(name, (steps, float(value)), xytext=(6, 0), textcoords="offset points", va="center", color=color)
    axes.set(xlim=(0, steps), ylim=(-0.95, 1.15), xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(False)
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(__file__).parent / "_static" / "latch.svg")
