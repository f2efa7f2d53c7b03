"""What a person sees while a model trains: a bar on a terminal, on stderr; elsewhere only the lines that are told."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from latchwork.training.engine import Progress


class Display:
    """Shows a run; a context manager."""

    def __init__(self, name: str, steps: int) -> None:
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[text]}"),  # last: it is what a narrow terminal may cut off
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=steps, text="beginning")
        self._shown = False

    def __enter__(self) -> Display:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it as it is."""
        self._bar.stop()

    def watch(self, progress: Progress) -> None:
        """After a step. The steps of earlier processes do not count for how long the rest will take."""
        if not self._shown:
            self._bar.reset(self._task, completed=progress.step - 1)
            self._shown = True
        self._bar.update(self._task, completed=progress.step, text=progress.text or line(progress))

    def tell(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, soft_wrap=True)


def line(progress: Progress) -> str:
    """The numbers of a step, in few letters."""
    parts = [
        f"loss {progress.loss:.4f}",
        f"lr {progress.learning_rate:.1e}",
        f"|g| {progress.gradient_norm:.2f}",
        f"{progress.tokens_per_second:,.0f} tokens/s",
    ]
    return "  ".join(parts + ([] if progress.utilisation is None else [f"MFU {100 * progress.utilisation:.0f}%"]))
