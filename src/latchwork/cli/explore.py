"""`latchwork explore`: a page in which networks and machines are stepped through."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from latchwork.cli.options import check_out
from latchwork.cli.options import path as read_path


def explore(
    model: Annotated[
        str | None, typer.Argument(help="a model's folder, or a network of the zoo. Default: the whole zoo")
    ] = None,
    task: Annotated[str, typer.Option(help="the task of a model's folder, such as 'latching(4)'")] = "",
    regex: Annotated[str, typer.Option(help="a regular expression; its network is compiled")] = "",
    alphabet: Annotated[str, typer.Option(help="the letters of --regex. Default: those it names, sorted")] = "",
    word: Annotated[str, typer.Option(help="the word to start with, such as '0 7 7' or 'abba'")] = "",
    out: Annotated[Path, typer.Option(parser=read_path, help="the page")] = Path("explore.html"),
    show: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
) -> None:
    """Write a page in which you step through a network: each unit, the answer, the target, the machine.

    The page is one file. It needs no connection and runs the network itself.
    """
    from latchwork import zoo
    from latchwork.cli.options import minmax_model
    from latchwork.files import write_text
    from latchwork.reports.explore import make_page, network_subject, regex_subject, zoo_subject
    from latchwork.tasks import make_task

    if model is not None and regex:
        raise typer.BadParameter("give either MODEL or --regex", param_hint="--regex")
    if task and (model is None or regex):
        raise typer.BadParameter("is for a MODEL", param_hint="--task")
    if alphabet and not regex:
        raise typer.BadParameter("is for --regex", param_hint="--alphabet")
    check_out(out, folder=False)
    made = make_task(task) if task else None
    with Console(stderr=True).status("running networks"):
        if regex:
            subjects = [regex_subject(regex, alphabet or None)]
        elif model is None:
            subjects = [
                zoo_subject(name) for name in sorted(zoo.names(), key=lambda name: (name != "latching-4", name))
            ]
        elif made is None and model in zoo.names():
            subjects = [zoo_subject(model)]
        else:
            subjects = [network_subject(minmax_model(model, "explore"), model, made)]
    write_text(out, make_page(subjects, word=word))
    typer.echo(out)
    if show:
        typer.launch(out.absolute().as_uri())
