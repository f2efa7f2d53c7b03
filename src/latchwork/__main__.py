"""`python -m latchwork`."""

from latchwork.cli.main import app

app(prog_name="latchwork")
