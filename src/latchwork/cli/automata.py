"""`latchwork compile`, `extract`, `certify`, `draw`: machines and networks, one made from the other."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from latchwork.automata.expression import letters as letters_of
from latchwork.automata.machine import Machine
from latchwork.cli.options import check_out, number
from latchwork.cli.options import path as read_path
from latchwork.errors import NO, UNKNOWN
from latchwork.files import read_json
from latchwork.learning.learned import ABOUT, MACHINE
from latchwork.models import MinMaxRNC_LM

Alphabet = Annotated[
    str, typer.Option(help="the letters, token i is the i-th; default: those of the expression, sorted")
]
Folder = Annotated[str, typer.Argument(help="a model's folder, or the name of a network of the zoo")]


def compile(
    expression: Annotated[
        str, typer.Argument(help=r"a regular expression: letters, (), |, *, +, ?, {m,n}, [a-c], ., \d, \w")
    ],
    alphabet: Alphabet = "",
    method: Annotated[str, typer.Option(help="cascade or one_hot")] = "cascade",
    groups: Annotated[str, typer.Option(help="of a cascade: direct, or series, of the least degree")] = "direct",
    out: Annotated[Path | None, typer.Option(parser=read_path, help="a folder to save the network in")] = None,
) -> None:
    """Make a network that says at each step whether what it has read is in the language, right for all lengths."""
    from latchwork.automata.compile import compile as compile_machine
    from latchwork.automata.errors import DecompositionTooLarge

    if method not in ("cascade", "one_hot"):
        raise typer.BadParameter(f"must be cascade or one_hot; got {method!r}", param_hint="--method")
    if groups not in ("direct", "series"):
        raise typer.BadParameter(f"must be direct or series; got {groups!r}", param_hint="--groups")
    if out is not None:
        check_out(out, folder=True)
    machine = _expression(expression, alphabet)
    try:
        with Console(stderr=True).status(f"compiling a machine of {machine.n_states:,} states"):
            model = compile_machine(
                machine,
                "one_hot" if method == "one_hot" else "cascade",
                "series" if groups == "series" else "direct",
            )
    except DecompositionTooLarge as error:
        raise typer.BadParameter(str(error), param_hint="EXPRESSION") from None
    if out is not None:
        model.save(out)
    shape = model.config.backbone
    typer.echo(
        f"{machine.n_states} states; a network of degree {shape.degree}, {shape.n_layers} layers, {shape.d_state} "
        f"state scalars, {model.parameter_count():,} parameters"
    )
    if out is not None:
        typer.echo(out)


def extract(
    path: Folder,
    max_states: Annotated[int, typer.Option(min=1, help="stop beyond so many")] = 100_000,
    symbols: Annotated[int | None, typer.Option(min=1, help="the tokens that come: 0 to this, less one")] = None,
    out: Annotated[Path | None, typer.Option(parser=read_path, help="a JSON file for the machine, minimal")] = None,
) -> None:
    """Find the machine that a network is, exactly. Exit code 1 if it has too many states."""
    from latchwork.automata.extract import StateExplosion
    from latchwork.automata.extract import extract as extract_machine

    if out is not None:
        check_out(out, folder=False)
    model = _model(path)
    console = Console(stderr=True)
    try:
        with console.status("stepping") as status:
            machine = extract_machine(
                model,
                max_states,
                symbols=symbols,
                watch=lambda found, waiting: status.update(f"{found:,} states, {waiting:,} to follow"),
            )
    except StateExplosion as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(NO) from None
    smallest = machine.minimise()
    if out is not None:
        smallest.save(out)
    typer.echo(f"{machine.n_states:,} states; the smallest machine that does the same has {smallest.n_states:,}")
    if out is not None:
        typer.echo(out)


def certify(
    path: Folder,
    task: Annotated[str, typer.Argument(help="as make_task takes it: 'latching(4)', 'regular((ab)*, ab)', ...")] = "",
    formula: Annotated[str, typer.Option(help="instead: a formula over the symbols that `latchwork learn` saved")] = "",
    regex: Annotated[str, typer.Option(help="instead: a regular expression; letter i of the alphabet is token i")] = "",
    table: Annotated[str, typer.Option(help="instead: a machine's JSON file")] = "",
    precision: Annotated[str, typer.Option(help="of the runs to prove it for: float32 or float64")] = "float32",
    tolerance: Annotated[
        float, typer.Option(min=0, callback=number, help="how much further off a drive or logit may be")
    ] = 0.0,
    max_states: Annotated[int, typer.Option(min=1, help="stop beyond so many")] = 5_000_000,
    max_bytes: Annotated[int, typer.Option(min=1, help="stop where a layer's tables take more")] = 1 << 30,
) -> None:
    """Prove a network right on all words of a task or a machine, of any length, or find a word on which it is wrong.

    Exit code 0: proved. 1: a counterexample. 2: wrong usage or input. 3: unknown, neither was found.
    """
    from latchwork.automata.certify import Counterexample, Proof
    from latchwork.automata.certify import certify as certify_model
    from latchwork.tasks import make_task

    if precision not in ("float32", "float64"):
        raise typer.BadParameter(f"must be float32 or float64; got {precision!r}", param_hint="--precision")
    if sum(map(bool, (task, formula, regex, table))) != 1:
        raise typer.BadParameter("give one of them", param_hint="TASK, --formula, --regex or --table")
    model, symbols = _model(path), _symbols(path)
    name, no_answer = task or formula or regex or table, None
    if task:
        made = make_task(task)
        machine, name, no_answer = Machine.from_task(made), made.name, made.vocabulary
    elif table:
        machine = Machine.load(table)
    else:
        machine = Machine.from_formula(formula, symbols) if formula else Machine.from_regex(regex)
    with Console(stderr=True).status("walking") as status:
        result = certify_model(
            model,
            machine,
            no_answer=no_answer,
            precision="float64" if precision == "float64" else "float32",
            tolerance=tolerance,
            max_states=max_states,
            max_bytes=max_bytes,
            watch=lambda found, waiting: status.update(f"{found:,} states, {waiting:,} to follow"),
        )
    if isinstance(result, Proof):
        further = f", or within {result.tolerance:g} of exact" if result.tolerance else ""
        typer.echo(
            f"proved: right on all words of {name}, of any length, in {result.precision}, whatever the order of "
            f"its sums{further}.\n"
            f"{result.states:,} states, margin {result.margin:.3g}; rounding: at most {result.bound:.1e}, seen in "
            f"float32 {result.float32_seen:.1e}; {result.seconds:.1f} s"
        )
        return
    if isinstance(result, Counterexample):
        word = list(result.word) if symbols is None else [symbols[each] for each in result.word]
        typer.echo(f"wrong: to {word} it says {result.said}, and should say {result.expected}")
        raise typer.Exit(NO)
    typer.echo(f"unknown: {result.reason}\nwhat to do: {result.advice}", err=True)
    raise typer.Exit(UNKNOWN)


def draw(
    what: Annotated[str, typer.Argument(help="a regular expression, a machine's JSON file, or a folder that has one")],
    out: Annotated[Path, typer.Option(parser=read_path, help="the SVG file")] = Path("machine.svg"),
    alphabet: Alphabet = "",
) -> None:
    """Draw a machine."""
    check_out(out, folder=False)
    letters: Sequence[str] | None
    if what.endswith(".json") or Path(what, MACHINE).is_file():
        folder = Path(what).parent if what.endswith(".json") else Path(what)
        machine = Machine.load(what if what.endswith(".json") else folder / MACHINE)
        letters = _symbols(str(folder))
        letters = letters if letters is not None and len(letters) == machine.n_symbols else None
    else:
        machine, letters = _expression(what, alphabet), alphabet or letters_of(what)
    try:
        machine.draw(out, letters)
    except RuntimeError as error:  # of Graphviz
        raise typer.BadParameter(str(error), param_hint="WHAT") from None
    typer.echo(out)


def _expression(expression: str, alphabet: str) -> Machine:
    return Machine.from_regex(expression, alphabet or None)


def _symbols(folder: str) -> list[str] | None:
    """The names of the symbols, if `latchwork learn` saved them in that folder."""
    values = (read_json(Path(folder) / ABOUT) or {}).get("symbols")
    return [str(each) for each in values] if isinstance(values, list) else None


def _model(path: str) -> MinMaxRNC_LM:
    from latchwork import zoo

    if path in zoo.names():
        return zoo.load(path)
    if not path or not Path(path).exists():
        near = get_close_matches(path, zoo.names(), n=3) or zoo.names()
        raise typer.BadParameter(
            f"{path!r} is no folder and no network of the zoo; did you mean {', '.join(near)}?", param_hint="PATH"
        )
    return MinMaxRNC_LM.load(path)
