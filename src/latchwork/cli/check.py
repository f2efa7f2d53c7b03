"""`latchwork check`: which backends are here, and are they right?"""

from __future__ import annotations

import platform
import time

import torch
import typer
from rich.console import Console
from rich.table import Table

from latchwork.ops.cpu import kernel
from latchwork.ops.selfcheck import check_backends


def check() -> None:
    """Compare every backend, forward and gradients, with the definition on this machine."""
    start = time.perf_counter()
    table = Table("backend", "device", "state", "forward and gradients against the definition")
    reports = check_backends()
    for report in reports:
        if report.missing is not None:
            table.add_row(report.backend, "", "[yellow]not here", report.missing)
        elif report.wrong:
            table.add_row(report.backend, report.device, "[red]wrong", "differs: " + "; ".join(report.wrong))
        else:
            table.add_row(report.backend, report.device, "[green]right", f"{report.cases} cases, all equal")
    console = Console()
    console.print(table)
    instructions = "no C++ kernel" if kernel.MISSING else f"C++ kernel with {kernel.isa()}"
    console.print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {instructions}, "
        f"{torch.get_num_threads()} threads; {time.perf_counter() - start:.1f} s"
    )
    if any(report.wrong for report in reports):
        raise typer.Exit(1)
