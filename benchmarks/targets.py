"""The figures to reach, each against what was measured; 1 thread and float32 where nothing else is said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from contenders import OURS
from measure import Row, Shape

Results = dict[str, list[Row]]
SHORT: Shape = (64, 512, 40)
LONG: Shape = (64, 2048, 40)


@dataclass(frozen=True)
class Target:
    """A quantity, how to read it from the results, and the bound it must keep."""

    text: str
    value: Callable[[Results], float | None]
    bound: float
    at_least: bool = True

    def reached(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


def pick(results: Results, section: str, field: str, **match: object) -> float | None:
    """The field of the first row that has it and agrees with `match`."""
    for row in results.get(section, []):
        if field in row and all(row.get(key) == value for key, value in match.items()):
            return float(row[field])
    return None


def faster(mode: str, shape: Shape) -> Callable[[Results], float | None]:
    """How many times as fast as minmaxrnc."""
    match = {"shape": shape, "threads": 1, "contender": "minmaxrnc"}
    return lambda results: pick(results, "speed", f"{mode} ratio", **match)


def percent(mode: str, shape: Shape) -> Callable[[Results], float | None]:
    return lambda results: pick(results, "stream", f"{mode} percent", shape=shape, threads=1)


def growing(field: str, mode: str) -> Callable[[Results], float | None]:
    return lambda results: pick(results, "growth", field, mode=mode)


def least(field: str) -> Callable[[Results], float | None]:
    """The smallest over the degrees."""

    def value(results: Results) -> float | None:
        return min((row[field] for row in results.get("degree", []) if field in row), default=None)

    return value


def step(results: Results) -> float | None:
    seconds = pick(results, "overhead", "seconds", call="minmax_step")
    return None if seconds is None else seconds * 1e6


FORWARD, BOTH = "forward", "forward+backward"
TARGETS = (
    Target(f"forward {SHORT}, times as fast as minmaxrnc", faster(FORWARD, SHORT), 38),
    Target(f"forward+backward {SHORT}, times as fast as minmaxrnc", faster(BOTH, SHORT), 120),
    Target(f"forward+backward {LONG}, times as fast as minmaxrnc", faster(BOTH, LONG), 165),
    Target(f"forward {SHORT}, % of triad, warm output", percent("forward", SHORT), 95),
    Target(f"backward {SHORT}, % of four reads, two writes", percent("backward", SHORT), 85),
    Target(f"backward {LONG}, % of four reads, two writes", percent("backward", LONG), 85),
    Target(
        f"peak memory of forward+backward {LONG}, multiples of r",
        lambda results: pick(results, "memory", "multiple", contender=OURS),
        3.2,
        at_least=False,
    ),
    Target("forward (1, 2^20, 40), 2 threads against 1", growing("gain", FORWARD), 1.5),
    Target("forward+backward (1, 2^20, 40), 2 threads against 1", growing("gain", BOTH), 1.5),
    Target("forward, growth exponent in T", growing("exponent", FORWARD), 1.03, at_least=False),
    Target("forward+backward, growth exponent in T", growing("exponent", BOTH), 1.03, at_least=False),
    Target("degree n forward+backward, times as fast as the loop, least over n", least("ratio"), 40),
    Target("degree n forward, % of its stream, least over n", least("forward percent"), 40),
    Target("degree n backward, % of its stream, least over n", least("backward percent"), 40),
    Target("minmax_step (1, 1456) without gradient, us", step, 12, at_least=False),
)


def judge(results: Results, targets: Sequence[Target] = TARGETS) -> list[Row]:
    rows = []
    for target in targets:
        value = target.value(results)
        reached = None if value is None else target.reached(value)
        rows.append(Row(figure=target.text, bound=target.bound, at_least=target.at_least))
        rows[-1].update(value=value, reached=reached)
    return rows


def table(rows: list[Row]) -> Table:
    result = Table(title="Targets")
    result.add_column("figure")
    for heading in ("target", "measured"):
        result.add_column(heading, justify="right")
    result.add_column("")
    words = {None: "not measured", True: "[green]reached", False: "[red]not reached"}
    for row in rows:
        bound = f"{'>=' if row['at_least'] else '<='} {row['bound']:g}"
        value = "-" if row["value"] is None else f"{row['value']:.2f}"
        result.add_row(row["figure"], bound, value, words[row["reached"]])
    return result
