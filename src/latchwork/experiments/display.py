"""What a person sees while a sweep runs: a bar for each run, on a terminal; elsewhere a line every few seconds."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from latchwork.experiments.run import run_folder
from latchwork.experiments.sweep import Run
from latchwork.experiments.worker import PROGRESS
from latchwork.files import read_json

BETWEEN = 10.0  # seconds from one line to the next, where there is no terminal


class Display:
    """Shows runs on stderr; a context manager."""

    def __init__(self, out: Path, scale: str) -> None:
        self._out, self._scale = out, scale
        self._console = Console(stderr=True)
        self._bars: dict[Run, TaskID] = {}
        self._said = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Display:
        """Show the bars."""
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave them as they are."""
        self._progress.stop()

    def watch(self, run: Run, event: str) -> None:
        """A run started, was done or failed."""
        if not self._console.is_terminal:
            self._say(run, event)
        if event == "started":
            self._bars[run] = self._progress.add_task(_title(run), total=None, text="waiting")
        elif run in self._bars:
            self._progress.update(self._bars.pop(run), total=1, completed=1, text=event)

    def look(self) -> None:
        """Read what the runs under way have written."""
        if not self._console.is_terminal:
            if time.monotonic() < self._said + BETWEEN:
                return
            self._said = time.monotonic()
        for run, bar in self._bars.items():
            folder = run_folder(self._out, self._scale, run.experiment, run.batch_size, run.seed)
            try:
                found = read_json(folder / PROGRESS)
            except (OSError, ValueError):
                continue
            if found is None:
                continue
            self._progress.update(bar, total=found["total"], completed=found["done"], text=found["line"])
            if not self._console.is_terminal:
                self._say(run, found["line"])

    def _say(self, run: Run, text: str) -> None:
        self._console.print(f"{_title(run)}: {text}", highlight=False, soft_wrap=True)


def _title(run: Run) -> str:
    return f"{run.experiment.name} batch {run.batch_size} seed {run.seed}"
