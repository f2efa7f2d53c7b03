"""Side by side: our models against the paper's own package, others of their size, and the limits of the machine.

    pip install -c constraints.txt -r benchmarks/requirements.txt
    python benchmarks/model.py [--quick] [--only SECTION] [--seconds S] [--json PATH] [--text PATH]

Tables go to stdout, progress to stderr, everything measured to a JSON file, after each section: a run that is stopped
loses one section, and --only adds the others to the file. Close other programs first.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

import model_characters
import model_decode
import model_evaluation
import model_int8
import model_memory
import model_presets
import model_step
import model_targets
from machine import describe, version
from model_timing import Settings
from scan import RESULTS, listing, write
from targets import judge
from targets import table as targets_table

SECTIONS = {
    "step": model_step,
    "presets": model_presets,
    "characters": model_characters,
    "evaluation": model_evaluation,
    "decode": model_decode,
    "memory": model_memory,
    "int8": model_int8,
}
QUICK = ("step", "decode")
MOMENT = ("load before", "date", "commit")  # what may differ from section to section of one file

DEFAULT = "results/model.json here, partial.json if --quick"


def main(
    quick: Annotated[bool, typer.Option("--quick", help="two sections, 1 thread, a minute")] = False,
    only: Annotated[list[str] | None, typer.Option(help=f"{', '.join(SECTIONS)}; may be repeated")] = None,
    seconds: Annotated[float, typer.Option(help="for each contender in each comparison")] = 10.0,
    path: Annotated[Path | None, typer.Option("--json", help="file to write", show_default=DEFAULT)] = None,
    text: Annotated[Path | None, typer.Option(help="a text to train on, for the perplexity in int8")] = None,
) -> None:
    """Measure, print the tables and write the record."""
    if unknown := set(only or ()) - set(SECTIONS):
        raise typer.BadParameter(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if text is not None and not text.is_file():
        raise typer.BadParameter(f"--text must be a file; there is none at {text}")
    everything = torch.get_num_threads()
    settings = Settings(
        seconds=min(seconds, 3.0) if quick else seconds,
        threads=(1,) if quick else tuple(dict.fromkeys((1, everything))),
        quick=quick,
        text=text,
    )
    path = path or RESULTS / ("partial.json" if quick else "model.json")
    machine = describe(everything) | {"transformers": version("transformers")}
    record = begin(path, machine, merge=bool(only) and not quick)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(listing(machine))
    for name in only or (QUICK if quick else SECTIONS):
        moment = describe(everything)
        try:
            rows = SECTIONS[name].run(settings)
        except (ImportError, RuntimeError, ValueError) as reason:
            console.print(f"{name}: skipped: {reason}", markup=False)
            continue
        console.print(SECTIONS[name].table(rows))
        record["measured"][name] = {key: moment[key] for key in MOMENT} | {"seconds": settings.seconds, "quick": quick}
        record[name] = rows
        record["targets"] = judge(record, model_targets.TARGETS)
        write(path, **record)
    console.print(targets_table(judge(record, model_targets.TARGETS)))


def begin(path: Path, machine: dict[str, Any], merge: bool) -> dict[str, Any]:
    """The record to add sections to: that of the file, if it is of the same machine and versions, or a new one."""
    fixed = {key: value for key, value in machine.items() if key not in MOMENT}
    if not (merge and path.exists()):
        return {"machine": fixed, "measured": {}}
    record = json.loads(path.read_text())
    if differing := [key for key in fixed if record["machine"].get(key) != fixed[key]]:
        raise typer.BadParameter(f"{path} was measured with another {', '.join(differing)}; give another --json")
    return record


if __name__ == "__main__":
    typer.run(main)
