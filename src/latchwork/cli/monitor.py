"""`latchwork monitor`: does a trace satisfy a formula of temporal logic?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from latchwork.extras import need

if TYPE_CHECKING:
    from torch import Tensor

    from latchwork.temporal import Formula

Text = Annotated[str, typer.Argument(help="as in RTAMT: 'always (near implies eventually[0:3] speed <= 1)'")]
Traces = Annotated[
    list[str], typer.Argument(help="CSV or parquet files, a trace each; - reads CSV from standard input")
]


def monitor(
    formula: Text,
    traces: Traces,
    plot: Annotated[Path | None, typer.Option(help="write a page with signals and robustness (one trace)")] = None,
) -> None:
    """Say for each trace how robustly it satisfies a formula, and where it is violated first.

    Signals are columns, steps are rows. Robustness above 0: satisfied; below 0: violated; 0 counts as satisfied. A
    formula that looks ahead without end is asked at the first step, others at every step. From standard input each line
    is answered as it comes. Exit code 0: satisfied. 1: violated. 2: bad usage, or a value is missing (NaN).
    """
    from latchwork.files import write_text
    from latchwork.temporal import parse

    need("temporal", "lark")
    try:
        parsed = parse(formula)
    except ValueError as error:  # it shows the place in the text, on lines of its own
        _bad(ValueError(f"Error: FORMULA, {error}"))
    if list(parsed.named_parameters()):
        raise typer.BadParameter("thresholds $name have no value here; write numbers", param_hint="FORMULA")
    if "-" in traces:
        if len(traces) > 1 or plot is not None:
            raise typer.BadParameter("- stands alone, and without --plot", param_hint="TRACES")
        raise typer.Exit(_stream(parsed))
    if plot is not None and len(traces) > 1:
        raise typer.BadParameter("takes one trace", param_hint="--plot")
    from latchwork.temporal.tables import read_trace

    answers = []
    for name in traces:
        try:
            trace = read_trace(Path(name), parsed.names)
        except (ValueError, OSError) as error:
            _bad(error)
        answers.append(_answer(parsed, name, trace))
        if plot is not None:
            from latchwork.temporal.plot import page

            write_text(plot, page(parsed, trace, name))
            typer.echo(plot)
    raise typer.Exit(max(answers, key=(0, 2, 1).index))


def _answer(formula: Formula, name: str, trace: dict[str, Tensor]) -> int:
    """Print what is to be said of a trace; the exit code."""
    steps = len(next(iter(trace.values()), ()))
    if steps == 0:
        typer.echo(f"{name}: no steps")
        return 2
    values = formula(trace)
    if formula.horizon == float("inf"):
        value = float(values[0])
        if value != value:
            typer.echo(f"{name}: unknown, a value is missing")
            return 2
        if value >= 0:
            typer.echo(f"{name}: satisfied, robustness {value:g}")
            return 0
        typer.echo(f"{name}: violated, robustness {value:g}; {_decided(formula, trace)}")
        return 1
    below, missing = values < 0, values.isnan()
    if bool(below.any()):
        first = int(below.long().argmax())
        typer.echo(
            f"{name}: violated first at step {first}, robustness {float(values[first]):g}; at {int(below.sum())} of "
            f"{steps} steps; lowest {float(values[~missing].min()):g}"
        )
        return 1
    if bool(missing.any()):
        typer.echo(f"{name}: unknown from step {int(missing.long().argmax())} on, a value is missing")
        return 2
    typer.echo(f"{name}: satisfied at all {steps} steps, lowest robustness {float(values.min()):g}")
    return 0


def _decided(formula: Formula, trace: dict[str, Tensor]) -> str:
    """Where a violation was certain."""
    from latchwork.temporal.core import TooLarge
    from latchwork.temporal.monitor import first_violation

    try:
        step = first_violation(formula, trace)
    except TooLarge:
        return "where is not followed, since past operators stand over future ones"
    return "by the end of the trace, not before" if step is None else f"certain at step {step}"


def _stream(formula: Formula) -> int:
    """Answer standard input line by line; the exit code at its end."""
    from latchwork.temporal.tables import rows_of

    try:
        watch = formula.online()
        endless = formula.horizon == float("inf")
        code, value, step = 0, float("nan"), -1
        typer.echo("step\trobustness\tverdict")
        words = {1: "satisfied", -1: "violated", 0: "open"}
        for step, row in enumerate(rows_of(sys.stdin, "standard input", watch.signals)):
            value = float(watch.step(dict(zip(watch.signals, row, strict=True))))
            if endless:
                typer.echo(f"{step}\t{value:g}\t{words[int(watch.verdict)]}")
            elif step >= watch.delay:
                code = max(code, _say(step - watch.delay, value), key=(0, 2, 1).index)
        if not endless:
            rest = watch.finish()[0].tolist()
            for place, late in enumerate(rest):
                code = max(code, _say(step + 1 - len(rest) + place, late), key=(0, 2, 1).index)
            return code
        return 2 if value != value else int(value < 0)
    except ValueError as error:
        _bad(error)
    except KeyboardInterrupt:
        return 130


def _say(step: int, value: float) -> int:
    word = "violated" if value < 0 else "unknown" if value != value else "satisfied"
    typer.echo(f"{step}\t{value:g}\t{word}")
    sys.stdout.flush()
    return {"violated": 1, "unknown": 2, "satisfied": 0}[word]


def _bad(error: Exception) -> NoReturn:
    typer.echo(str(error), err=True)
    raise typer.Exit(2)
