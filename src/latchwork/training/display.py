"""What a person sees while a model trains: a bar on a terminal or in a notebook, elsewhere a line now and then."""

from __future__ import annotations

import time
from html import escape
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from latchwork.training.engine import Progress

INTERVAL = 30.0  # seconds between two lines where there is no bar
REDRAW = 0.2  # seconds between two pictures of the bar in a notebook


class Display:
    """Shows a run on stderr; a context manager whose `watch` and `tell` the trainings take."""

    def __init__(self, name: str) -> None:
        self._name, self._console = name, Console(stderr=True)
        self._notebook = NotebookBar(name) if self._console.is_jupyter else None
        self._shows_bar = self._console.is_terminal and self._notebook is None
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[text]}"),  # last: it is what a narrow terminal may cut off
            console=self._console,
            disable=not self._shows_bar,
        )
        self._task = self._bar.add_task(name, total=None, text="starting")
        self._shown = False
        self._printed = time.monotonic()

    def __enter__(self) -> Display:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave it as it is."""
        self._bar.stop()
        if self._notebook is not None:
            self._notebook.draw()

    def watch(self, progress: Progress) -> None:
        """After a step."""
        if self._notebook is not None:
            self._notebook.show(progress)
            return
        if not self._shows_bar:
            if time.monotonic() - self._printed > INTERVAL:
                self._printed = time.monotonic()
                self.tell(f"{self._name}: step {progress.step:,}  {line(progress)}")
            return
        if not self._shown:  # what was done before a resume does not count for how long the rest will take
            self._bar.reset(self._task, completed=int(progress.done), total=progress.total)
            self._shown = True
        self._bar.update(self._task, completed=progress.done, total=progress.total, text=line(progress))

    def tell(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, soft_wrap=True)


class NotebookBar:
    """A bar below a cell of a notebook, by IPython alone: that of rich needs ipywidgets, and shows nothing without."""

    def __init__(self, name: str) -> None:
        self._name, self._drawn = name, 0.0
        self._progress: Progress | None = None
        self._ipython: Any = import_module("IPython.display")
        self._handle = self._ipython.display(self._page(), display_id=True)

    def show(self, progress: Progress) -> None:
        """After a step."""
        self._progress = progress
        if time.monotonic() > self._drawn + REDRAW:
            self.draw()

    def draw(self) -> None:
        """Put the bar as it is now in the place of the last one."""
        self._drawn = time.monotonic()
        self._handle.update(self._page())

    def _page(self) -> Any:
        now = self._progress
        size = f' value="{now.done:g}" max="{now.total:g}"' if now is not None and now.total else ""
        text = "starting" if now is None else line(now)
        return self._ipython.HTML(f"{escape(self._name)} <progress{size}></progress> {escape(text)}")


def line(progress: Progress) -> str:
    """The numbers of a step, in few letters.

    >>> line(Progress(3, 3, 9, 2.5, 6e-4, 1.25, 12345.6, text="length 8"))
    'length 8  loss 2.5000  lr 6.0e-04  |g| 1.25  12,346 tokens/s'
    """
    parts = [
        *([progress.text] if progress.text else []),
        f"loss {progress.loss:.4f}",
        f"lr {progress.learning_rate:.1e}",
        f"|g| {progress.gradient_norm:.2f}",
        f"{progress.tokens_per_second:,.0f} tokens/s",
    ]
    return "  ".join(parts + ([] if progress.utilisation is None else [f"MFU {100 * progress.utilisation:.0f}%"]))
