"""Peak memory of forward and backward, each contender in a process of its own.

The high-water mark of the resident set, beyond what is resident when r, s, x0 and the gradient of the output
are there. The gradients of r and s count. Linux only.
"""

import subprocess
import sys
from pathlib import Path

import torch
from rich.table import Table

from contenders import CONTENDERS, OURS, Inputs
from measure import Row, Settings, Shape, progress

SHAPE: Shape = (64, 2048, 40)
COMPARED = (OURS, "latchwork torch", "minmaxrnc", "torch loop")


def run(settings: Settings) -> list[Row]:
    rows = []
    for name in COMPARED:
        progress(f"memory: {name}")
        command = [sys.executable, __file__, name]
        done = subprocess.run(command, capture_output=True, text=True)
        row = Row(shape=SHAPE, contender=name)
        if done.returncode == 0:
            row["multiple"] = float(done.stdout)
        elif "ModuleNotFoundError" in done.stderr:
            row["note"] = f"not installed: pip install {CONTENDERS[name].requirement or 'latchwork'}"
        else:
            row["note"] = f"failed: {done.stderr.strip().splitlines()[-1]}"
        rows.append(row)
    return rows


def peak(name: str) -> float:
    """Peak of one forward and backward on SHAPE in this process, in multiples of the size of r."""
    torch.set_num_threads(1)
    contender = CONTENDERS[name]
    contender.prepare(Inputs((2, 8, SHAPE[2]))).forward_backward()  # loads and allocates what is needed once
    inputs = Inputs(SHAPE)
    problem = contender.prepare(inputs)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    problem.forward_backward()
    return (resident("VmHWM") - before) / inputs.r.nbytes


def resident(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def table(rows: list[Row]) -> Table:
    result = Table(title=f"Peak memory of forward+backward at {SHAPE}, beyond the inputs, in multiples of r.")
    result.add_column("contender")
    result.add_column("multiple", justify="right")
    result.add_column("notes")
    for row in rows:
        value = f"{row['multiple']:.2f}" if "multiple" in row else "-"
        result.add_row(row["contender"], value, row.get("note", ""))
    return result


if __name__ == "__main__":
    print(peak(sys.argv[1]))
