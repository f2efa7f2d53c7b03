"""Errors as a person at a terminal meets them: one line and an exit code, no traceback."""

from __future__ import annotations

import os
import traceback

from safetensors import SafetensorError

NO, BAD_INPUT, UNKNOWN, INTERNAL, BROKEN_PIPE = 1, 2, 3, 70, 141  # exit codes
TRACEBACK = "LATCHWORK_TRACEBACK"  # the environment variable that asks for tracebacks
LONGEST = 1000  # characters of a line

# What wrong input, a missing package or a full machine raise. All else is a mistake of ours.
MISTAKES = (
    ValueError,
    OSError,
    ImportError,
    MemoryError,
    OverflowError,
    FloatingPointError,
    RecursionError,
    SafetensorError,
)


def explain(error: BaseException) -> tuple[str, int]:
    """One line that says what went wrong, and the exit code.

    >>> explain(ValueError("length must be at least 1; got 0"))
    ('length must be at least 1; got 0', 2)
    >>> explain(NotADirectoryError(20, "Not a directory", "a/b"))
    ('a/b: Not a directory', 2)
    """
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, MemoryError) or _is_allocation(error):
        return one_line(f"out of memory: {error}".removesuffix(": ")), BAD_INPUT
    if isinstance(error, RecursionError):
        return one_line(f"the input is nested too deeply: {error}"), BAD_INPUT
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return one_line(f"{os.fsdecode(error.filename)}: {error.strerror}"), BAD_INPUT
    if isinstance(error, MISTAKES):
        return one_line(str(error) or type(error).__name__), BAD_INPUT
    name = type(error).__name__
    return one_line(f"internal error, {name}: {error}") + f" (set {TRACEBACK}=1 to see where)", INTERNAL


def one_line(text: str) -> str:
    """A text on one line, without what could steer a terminal, and not without end.

    >>> one_line("two\\nlines, \\x1b[31mred")
    'two lines, \\\\x1b[31mred'
    """
    line = " ".join(text.split())
    line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def _is_allocation(error: BaseException) -> bool:
    """torch raises RuntimeError where memory ends: on the CPU a plain one, on a GPU torch.OutOfMemoryError."""
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"
    )
