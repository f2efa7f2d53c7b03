"""`latchwork check`: which backends are here, and are their kernels right?"""

from __future__ import annotations

import platform
import time

import torch
import typer
from rich.console import Console
from rich.table import Table

from latchwork.ops.cpu import kernel
from latchwork.selfcheck import check_backends


def check() -> None:
    """Compare every kernel, forward and gradients, with its definition on this machine."""
    start = time.perf_counter()
    table = Table("operation", "backend", "device", "state", "forward and gradients against the definition")
    reports = check_backends()
    for report in reports:
        names = (report.operation, report.backend)
        if report.missing is not None:
            table.add_row(*names, "", "[yellow]not here", report.missing)
        elif report.wrong:
            table.add_row(*names, report.device, "[red]wrong", "differs: " + "; ".join(report.wrong))
        else:
            table.add_row(*names, report.device, "[green]right", f"{report.cases} cases agree")
    console = Console()
    console.print(table)
    instructions = "no C++ kernel" if kernel.MISSING else f"C++ kernel with {kernel.isa()}"
    console.print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {instructions}, "
        f"{torch.get_num_threads()} threads; {time.perf_counter() - start:.1f} s"
    )
    if wrong := [f"{report.operation} ({report.backend})" for report in reports if report.wrong]:
        console.print(f"[red]wrong: {', '.join(wrong)}")
        raise typer.Exit(1)
