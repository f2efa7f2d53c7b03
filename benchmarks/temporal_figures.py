"""The table of benchmarks/results/temporal.json as it stands in docs/temporal.md."""

from typing import Any

Lines = tuple[list[str], list[list[str]]]  # a head, and rows as long


def table_of(record: dict[str, Any]) -> Lines:
    """A row a figure: both times where there is a rival, what was measured, and the goal."""
    lines = []
    for row in record["rows"]:
        times = [f"{name} {duration(seconds)}" for name, seconds in row.get("seconds", {}).items()]
        bound = f"{'≥' if row['at_least'] else '≤'} {figure(row['bound'], row['unit'])}"
        reached = "reached" if row["reached"] else "**not reached**"
        lines.append([row["what"], ", ".join(times), figure(row["value"], row["unit"]), bound, reached])
    return ["what (1 thread)", "median times", "measured", "goal", ""], lines


def figure(value: float, unit: str) -> str:
    """A number with its unit, to three digits.

    >>> figure(3153.2, "x"), figure(0.0213, "GB"), figure(1.0249, "")
    ('3,153x', '0.0213 GB', '1.02')
    """
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return text + unit if unit in ("", "x") else f"{text} {unit}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(7.2e-9), duration(1.9e-6), duration(0.00031), duration(0.967), duration(39.4)
    ('7.2 ns', '1.9 us', '310 us', '967 ms', '39.4 s')
    """
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
