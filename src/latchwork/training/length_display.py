"""What a person sees while a model learns by length: a bar on a terminal, on stderr; elsewhere nothing."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from latchwork.training.curriculum import Learning


class LengthDisplay:
    """Shows the length that was reached, of `longest`; a context manager whose `watch` `learn_by_length` takes."""

    def __init__(self, name: str, longest: int) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),  # last: it is what a narrow terminal may cut off
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=longest, text="beginning")

    def __enter__(self) -> LengthDisplay:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it as it is."""
        self._bar.stop()

    def watch(self, found: Learning) -> None:
        """After a step."""
        self._bar.update(self._task, completed=found.length, text=line(found))


def line(found: Learning) -> str:
    """The numbers of a step, in few letters.

    >>> line(Learning(steps=755, loss=0.001, accuracy=0.99, learning_rate=1e-3))
    'step 755  accuracy 0.990  loss 0.0010  lr 1.0e-03'
    """
    parts = f"accuracy {found.accuracy:.3f}  loss {found.loss:.4f}  lr {found.learning_rate:.1e}"
    return f"step {found.steps}  {parts}" + (f"  {found.stopped}" if found.stopped else "")
