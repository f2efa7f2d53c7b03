"""`latchwork compile`, `extract`, `certify`, `draw`: machines and networks, one made from the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from latchwork.cli.options import MODEL_HELP, Model, check_out, minmax_model, number
from latchwork.cli.options import path as read_path
from latchwork.errors import NO, UNKNOWN
from latchwork.learning.learned import MACHINE
from latchwork.machines.expression import letters as letters_of
from latchwork.machines.machine import Machine

Method = Literal["smallest", "transformation", "one_hot", "cascade"]
Groups = Literal["direct", "series"]
Precision = Literal["float32", "float64"]
Alphabet = Annotated[
    str, typer.Option(help="the letters, token i is the i-th; default: those of the expression, sorted")
]


def compile(
    expression: Annotated[
        str, typer.Argument(help=r"a regular expression: letters, (), |, *, +, ?, {m,n}, [a-c], ., \d, \w")
    ],
    alphabet: Alphabet = "",
    method: Annotated[Method, typer.Option(help="how the network is made")] = "smallest",
    groups: Annotated[Groups, typer.Option(help="of a cascade: direct, or series, of the least degree")] = "direct",
    out: Annotated[Path | None, typer.Option(parser=read_path, help="a folder to save the network in")] = None,
) -> None:
    """Make a network that says at each step whether what it has read is in the language, right for all lengths."""
    from latchwork.automata.compile import FEW_SETS, sizes
    from latchwork.automata.compile import compile as compile_machine
    from latchwork.automata.errors import DecompositionTooLarge

    if out is not None:
        check_out(out, folder=True)
    machine = _expression(expression, alphabet)
    try:
        with Console(stderr=True).status(f"compiling a machine of {machine.n_states:,} states"):
            costs = sizes(machine, groups, max_sets=FEW_SETS)
            model = compile_machine(machine, method, groups)
    except DecompositionTooLarge as error:
        raise typer.BadParameter(str(error), param_hint="EXPRESSION") from None
    if out is not None:
        model.save(out)
    for name, cost in costs.items():
        typer.echo(f"{name}: {cost}")
    shape = model.config.backbone
    typer.echo(
        f"{machine.n_states} states; a network of degree {shape.degree}, {shape.n_layers} layers, {shape.d_state} "
        f"state scalars, {model.parameter_count():,} parameters"
    )
    if out is not None:
        typer.echo(out)


def extract(
    model: Model,
    max_states: Annotated[int, typer.Option(min=1, help="give up after this many states")] = 100_000,
    symbols: Annotated[int | None, typer.Option(min=1, help="number of input symbols; default: the vocabulary")] = None,
    out: Annotated[Path | None, typer.Option(parser=read_path, help="a JSON file for the machine, minimal")] = None,
) -> None:
    """Find the machine that a network is, exactly. Exit code 1 if it has too many states."""
    from latchwork.automata.extract import StateExplosion
    from latchwork.automata.extract import extract as extract_machine

    if out is not None:
        check_out(out, folder=False)
    network = minmax_model(model, "extract")
    console = Console(stderr=True)
    try:
        with console.status("stepping") as status:
            machine = extract_machine(
                network,
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
    model: Model,
    task: Annotated[str, typer.Argument(help="as make_task takes it: 'latching(4)', 'regular((ab)*, ab)', ...")] = "",
    formula: Annotated[str, typer.Option(help="instead: a formula over the symbols that `latchwork learn` saved")] = "",
    regex: Annotated[str, typer.Option(help="instead: a regular expression; letter i of the alphabet is token i")] = "",
    table: Annotated[str, typer.Option(help="instead: a machine's JSON file")] = "",
    precision: Annotated[Precision, typer.Option(help="of the runs to prove it for")] = "float32",
    tolerance: Annotated[
        float, typer.Option(min=0, callback=number, help="how much further off a drive or logit may be")
    ] = 0.0,
    max_states: Annotated[int, typer.Option(min=1, help="give up after this many states")] = 5_000_000,
    max_bytes: Annotated[int, typer.Option(min=1, help="give up when the tables of a layer take more bytes")] = 1 << 30,
) -> None:
    """Prove a network right on all words of a task or a machine, of any length, or find a word on which it is wrong.

    Exit code 0: proved. 1: a counterexample. 2: wrong usage or input. 3: unknown, neither was found.
    """
    from latchwork.automata.certify import Counterexample, Proof
    from latchwork.automata.certify import certify as certify_model
    from latchwork.tasks import make_task

    if sum(map(bool, (task, formula, regex, table))) != 1:
        raise typer.BadParameter("give one of them", param_hint="TASK, --formula, --regex or --table")
    no_answer = None
    if task:
        made = make_task(task)
        machine, no_answer = Machine.from_task(made), made.vocabulary
    elif table:
        machine = Machine.load(table)
    else:
        machine = Machine.from_formula(formula, _symbols(model)) if formula else Machine.from_regex(regex)
    network = minmax_model(model, "certify")
    with Console(stderr=True).status("walking") as status:
        result = certify_model(
            network,
            machine,
            no_answer=no_answer,
            precision=precision,
            tolerance=tolerance,
            max_states=max_states,
            max_bytes=max_bytes,
            watch=lambda found, waiting: status.update(f"{found:,} states, {waiting:,} to follow"),
        )
    if isinstance(result, Proof):
        typer.echo(result)
        return
    if isinstance(result, Counterexample):
        typer.echo(result)
        raise typer.Exit(NO)
    typer.echo(result, err=True)
    raise typer.Exit(UNKNOWN)


def draw(
    what: Annotated[
        str, typer.Argument(help=f"a regular expression, a machine's JSON file, a folder that has one, or {MODEL_HELP}")
    ],
    out: Annotated[Path, typer.Option(parser=read_path, help="the SVG file")] = Path("machine.svg"),
    alphabet: Alphabet = "",
    max_states: Annotated[int, typer.Option(min=1, help="of a network: give up after this many states")] = 10_000,
) -> None:
    """Draw a machine, or the smallest machine that does what a network does."""
    from latchwork import zoo

    check_out(out, folder=False)
    if what.endswith(".json") or Path(what, MACHINE).is_file():
        machine, letters = Machine.load(what if what.endswith(".json") else Path(what) / MACHINE), None
    elif what in zoo.names() or Path(what).is_dir():
        machine, letters = _machine_of(what, max_states), alphabet or None
    else:
        machine, letters = _expression(what, alphabet), alphabet or letters_of(what)
    try:
        machine.draw(out, letters)
    except RuntimeError as error:  # of Graphviz
        raise typer.BadParameter(str(error), param_hint="WHAT") from None
    typer.echo(out)


def _expression(expression: str, alphabet: str) -> Machine:
    return Machine.from_regex(expression, alphabet or None)


def _symbols(folder: str) -> Sequence[str] | None:
    """The names of the symbols, if `latchwork learn` saved its machine in that folder."""
    path = Path(folder) / MACHINE
    return Machine.load(path).symbol_names if path.is_file() else None


def _machine_of(name: str, max_states: int) -> Machine:
    """The smallest machine that does what a network does."""
    from latchwork.automata.extract import StateExplosion, extract

    try:
        return extract(minmax_model(name, "draw"), max_states).minimise()
    except StateExplosion as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(NO) from None
