"""How fast tasks are drawn, on one thread: tokens a second of `sample` and of `stream`, the best of several.

    python benchmarks/tasks.py [--repeats N] [--json PATH]

Seconds are of the processor's time: nothing waits here, except for other programs on the same machine.
`sample` draws the whole train split; `stream` 64 rows of 2^17 steps of the evaluation split, 4096 at a time.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from latchwork.tasks import Task, make_task
from machine import describe
from measure import threads_set_to
from scan import RESULTS, write

PAPER = (
    "latching(4)",
    "latching(512)",
    "sequences(2)",
    "sequences(16)",
    "sequences(4, balanced)",
    "induction_heads(16)",
)
OTHERS = (
    "fflm(0.8)",
    "parity",
    "word_problem(S5)",
    "even_pairs",
    "cycle_navigation",
    "modular_arithmetic",
    "tomita(3)",
    "regular((ab)*)",
)
GOAL = 20e6  # tokens a second, of the paper's tasks
ROWS, LENGTH, CHUNK = 64, 1 << 17, 4096


def main(
    repeats: Annotated[int, typer.Option(help="of each measurement; the best counts")] = 5,
    path: Annotated[Path, typer.Option("--json", help="file to write")] = RESULTS / "tasks.json",
) -> None:
    """Measure, print the table and write the record."""
    machine = describe(1)
    rows = []
    with threads_set_to(1):
        for name in PAPER + OTHERS:
            print(name, file=sys.stderr)
            rows.append(measure(make_task(name), repeats, goal=GOAL if name in PAPER else None))
    Console(width=None if sys.stdout.isatty() else 120).print(table(rows))
    write(path, machine=machine, repeats=repeats, tasks=rows)


def measure(task: Task, repeats: int, goal: float | None) -> dict[str, Any]:
    sample = best(lambda: task.sample("train", 0).tokens.numel(), repeats)
    stream = best(lambda: sum(batch.tokens.numel() for batch in chunks(task)), repeats)
    reached = None if goal is None else min(sample, stream) >= goal
    return {"task": task.name, "sample": sample, "stream": stream, "goal": goal, "reached": reached}


def chunks(task: Task):
    return task.stream("evaluation", 0, rows=ROWS, length=LENGTH, chunk=CHUNK)


def best(draw: Callable[[], int], repeats: int) -> float:
    """Tokens a second of processor time."""
    rates = []
    for _ in range(repeats):
        start = time.process_time()
        tokens = draw()
        rates.append(tokens / (time.process_time() - start))
    return max(rates)


def table(rows: list[dict[str, Any]]) -> Table:
    result = Table("task", "sample", "stream", "goal", title="Million tokens a second, 1 thread")
    for row in rows:
        verdict = {True: "reached", False: "missed", None: ""}[row["reached"]]
        result.add_row(row["task"], f"{row['sample'] / 1e6:.1f}", f"{row['stream'] / 1e6:.1f}", verdict)
    return result


if __name__ == "__main__":
    typer.run(main)
