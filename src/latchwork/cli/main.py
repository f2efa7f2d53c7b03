"""The parser: `latchwork COMMAND` or `python -m latchwork COMMAND`."""

from __future__ import annotations

import typer

from latchwork.cli.automata import certify, compile, draw, extract
from latchwork.cli.check import check
from latchwork.cli.data import data
from latchwork.cli.eval_lm import eval_lm
from latchwork.cli.export import export
from latchwork.cli.list import list_experiments
from latchwork.cli.pretrain import pretrain
from latchwork.cli.report import report
from latchwork.cli.run import RunCommand, run
from latchwork.cli.sample import sample

app = typer.Typer(name="latchwork", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(check)
app.command("list")(list_experiments)
app.command(cls=RunCommand)(run)
app.command()(report)
app.command()(pretrain)
app.command()(export)
app.add_typer(data, name="data")
app.command()(sample)
app.command()(eval_lm)
for command in (compile, extract, certify, draw):
    app.command()(command)


@app.callback()
def main() -> None:
    """MinMax Recurrent Neural Cascades."""
