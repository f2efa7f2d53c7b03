"""Side by side: x_t = max(min(r_t, x_{t-1}), s_t) against its peers and against the limit of the memory.

    pip install -c constraints.txt -r benchmarks/requirements.txt
    python benchmarks/scan.py [--quick] [--only SECTION] [--seconds S] [--json PATH]

Tables go to stdout, progress to stderr, everything measured to a JSON file. Close other programs first.
"""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

import degree
import growth
import memory
import overhead
import roofline
import speed
import targets
from machine import describe
from measure import Row, Settings, Shape

SHAPES: tuple[Shape, ...] = ((64, 512, 40), (64, 512, 90), (64, 2048, 40), (16, 1024, 1456), (1, 2**20, 40))
RESULTS = Path(__file__).parent / "results"
SECTIONS = {
    "speed": speed,
    "stream": roofline,
    "memory": memory,
    "growth": growth,
    "degree": degree,
    "overhead": overhead,
}
QUICK = ("speed", "stream", "memory", "overhead")

DEFAULT = "results/scan.json here, partial.json if --quick or --only"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="two shapes, fewer sections, two minutes")] = False,
    only: Annotated[list[str] | None, typer.Option(help=f"{', '.join(SECTIONS)}; may be repeated")] = None,
    seconds: Annotated[float, typer.Option(help="for each contender in each comparison")] = 1.0,
    path: Annotated[Path | None, typer.Option("--json", help="file to write", show_default=DEFAULT)] = None,
) -> None:
    """Measure, print the tables and write the record."""
    if unknown := set(only or ()) - set(SECTIONS):
        raise typer.BadParameter(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    everything = torch.get_num_threads()
    settings = Settings(
        seconds=min(seconds, 0.5) if quick else seconds,
        longest_call=10 if quick else 20,
        shapes=SHAPES[:3:2] if quick else SHAPES,
        threads=tuple(dict.fromkeys((1, everything))),
        compiled=not quick,
    )
    chosen = only or (QUICK if quick else SECTIONS)
    console = Console(width=None if sys.stdout.isatty() else 160)
    machine = describe(everything)
    console.print(listing(machine))
    results: dict[str, list[Row]] = {}
    for name in chosen:
        try:
            results[name] = SECTIONS[name].run(settings)
        except (RuntimeError, ValueError) as reason:
            console.print(f"{name}: skipped: {reason}", markup=False)
        else:
            console.print(SECTIONS[name].table(results[name]))
    verdicts = targets.judge(results)
    console.print(targets.table(verdicts))
    default = RESULTS / ("partial.json" if quick or only else "scan.json")
    write(path or default, machine=machine, **results, targets=verdicts)


def listing(machine: dict[str, str | int]) -> Table:
    table = Table(title="Machine", show_header=False)
    for key, value in machine.items():
        table.add_row(key, str(value))
    return table


def write(path: Path, **record: object) -> None:
    """Write a JSON file that is either complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    typer.run(main)
