"""Names at the ends of lines, in place of a legend: each stands beside its line, and none on another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP = 0.085  # between two names, in heights of the panel
SIZE = 8  # points
LONGEST = 28  # characters of a name


def spread(places: list[float], gap: float = GAP) -> list[float]:
    """The places, moved apart until each two are `gap` from each other or more, in their order, near where they were.

    places: in heights of the panel, which they do not leave as long as there is room.
    >>> [round(each, 2) for each in spread([0.5, 0.5, 0.9], 0.1)]
    [0.45, 0.55, 0.9]
    >>> [round(each, 2) for each in spread([1.0, 1.0], 0.1)]
    [0.9, 1.0]
    >>> spread([])
    []
    """
    groups: list[list[int]] = []  # names that touch, and stand in one stack around the mean of their places
    for number in sorted(range(len(places)), key=lambda each: places[each]):
        groups.append([number])
        while len(groups) > 1 and _top(groups[-2], places, gap) + gap > _bottom(groups[-1], places, gap):
            last = groups.pop()
            groups[-1] += last
    found = list(places)
    for group in groups:
        for place, number in enumerate(group):
            found[number] = _bottom(group, places, gap) + gap * place
    return found


def shorten(name: str) -> str:
    """The name, or its two ends where it is long: what tells names apart may be at either.

    >>> shorten("minmax-s, a very long one, stopped")
    'minmax-s, a ve…g one, stopped'
    """
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half:]}"


def _bottom(group: list[int], places: list[float], gap: float) -> float:
    height = gap * (len(group) - 1)
    bottom = sum(places[each] for each in group) / len(group) - height / 2
    return min(max(bottom, 0.0), 1.0 - height) if height <= 1 else bottom


def _top(group: list[int], places: list[float], gap: float) -> float:
    return _bottom(group, places, gap) + gap * (len(group) - 1)


def label_ends(axes: Axes) -> None:
    """Write the label of each line of a panel whose limits are set at its right, in the colour of the line."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_") and len(line.get_ydata())]  # type: ignore[arg-type]
    low, high = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    ends = []
    for line in lines:
        value = next((float(each) for each in list(line.get_ydata())[::-1] if each == each), None)  # type: ignore[arg-type]
        height = low if value is None else axes.transData.transform((1, value))[1]
        ends.append(min(1.0, max(0.0, float((height - low) / (high - low)))))
    for line, place in zip(lines, spread(ends), strict=True):
        axes.text(
            1.02,
            place,
            shorten(str(line.get_label())),
            color=line.get_color(),
            fontsize=SIZE,
            transform=axes.transAxes,
            verticalalignment="center",
            clip_on=False,
        )
