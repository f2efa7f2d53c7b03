"""The parser: `latchwork COMMAND` or `python -m latchwork COMMAND`, and the one place where errors end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from latchwork.cli.automata import certify, compile, draw, extract
from latchwork.cli.check import check
from latchwork.cli.data import data
from latchwork.cli.eval_lm import eval_lm
from latchwork.cli.evaluate import evaluate
from latchwork.cli.examples import epilog
from latchwork.cli.explore import explore
from latchwork.cli.export import export
from latchwork.cli.learn import learn
from latchwork.cli.list import list_names
from latchwork.cli.monitor import monitor
from latchwork.cli.pretrain import pretrain
from latchwork.cli.report import report
from latchwork.cli.run import RunCommand, run
from latchwork.cli.runs import runs
from latchwork.cli.sample import sample
from latchwork.cli.version import show_version
from latchwork.errors import BAD_INPUT, BROKEN_PIPE, explain, one_line
from latchwork.signals import exit_code, stop_at_once


class Commands(TyperGroup):
    """All commands. Whatever one raises becomes one line on stderr and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command, and exit. Where a shell asks what may come next, answer that instead."""
        self._main_shell_completion(extra, prog_name or "latchwork", complete_var)
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, ValueError):  # closed, or not a stream of text
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            with stop_at_once():
                code = self._run(prog_name or "latchwork", sys.argv[1:] if args is None else list(args), extra)
        except KeyboardInterrupt as error:
            _say("interrupted")
            code = exit_code(error)
        except BrokenPipeError:  # who reads us has read enough
            code = BROKEN_PIPE
        except SystemExit as error:
            if not isinstance(error.__context__, BrokenPipeError):  # which rich turns into an exit
                raise
            code = BROKEN_PIPE
        except Exception as error:
            code = _tell(error)
        sys.exit(_flush(code))

    def _run(self, name: str, words: list[str], extra: dict[str, Any]) -> int:
        """The exit code of a command that does not raise."""
        if any("\0" in word for word in words):
            raise ValueError("an argument must not hold a NUL character")
        try:
            with self.make_context(name, words, **extra) as context:
                self.invoke(context)
        except typer.Exit as exit:
            return exit.exit_code
        return 0


def _tell(error: Exception) -> int:
    """Write one line for an error; the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is its message
        error.show()  # type: ignore[attr-defined]
        return BAD_INPUT
    message, code = explain(error)
    if hasattr(error, "format_message"):  # of the parser
        context = getattr(error, "ctx", None)
        message, code = (
            one_line(error.format_message()).replace("Value error, ", "").rstrip(".") + _got(error),
            BAD_INPUT,
        )
        if context is not None:
            message += f"{'' if message.endswith('?') else '.'} Try '{context.command_path} --help'."
    _say(f"Error: {message}")
    return code


def _got(error: Exception) -> str:
    """The value that the parser did not take, if it says so."""
    errors = getattr(error.__cause__, "errors", None)
    return f"; got {one_line(repr(errors()[0].get('input')))}" if callable(errors) else ""


def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # there may be nobody to read it
        typer.echo(line, err=True)


def _flush(code: int) -> int:
    """Write out what waits; if that cannot be, say so here, for at exit Python would with a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code == 0 and not isinstance(error, BrokenPipeError):
            return _tell(OSError(error.errno, error.strerror, "standard output"))
        return code or BROKEN_PIPE
    return code


app = typer.Typer(name="latchwork", cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)
COMMANDS: dict[str, Callable[..., None]] = {
    "check": check,
    "version": show_version,
    "list": list_names,
    "run": run,
    "runs": runs,
    "report": report,
    "evaluate": evaluate,
    "learn": learn,
    "explore": explore,
    "compile": compile,
    "extract": extract,
    "certify": certify,
    "draw": draw,
    "monitor": monitor,
    "pretrain": pretrain,
    "sample": sample,
    "eval-lm": eval_lm,
    "export": export,
}
for name, command in COMMANDS.items():
    app.command(name, cls=RunCommand if name == "run" else None, epilog=epilog(name))(command)
app.add_typer(data, name="data")


@app.callback()
def main() -> None:
    """MinMax Recurrent Neural Cascades.

    Exit codes: 0 done; 1 the answer is no; 2 wrong usage or input; 3 `certify` found no answer; 130 after Ctrl-C; 143
    after SIGTERM. An error is one line; LATCHWORK_TRACEBACK=1 adds the traceback.
    """
