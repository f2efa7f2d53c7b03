"""How far a call raises the resident memory of its process, each call in a process of its own. Linux only."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from measure import Row
from memory import resident


def extra_memory(call: Callable[[], object]) -> int:
    """Bytes between what is resident now and the high-water mark of the call."""
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    call()
    return resident("VmHWM") - before


def in_fresh_process(*command: object) -> Row:
    """Run a script of ours that prints bytes; returns them as `extra MB`, or a note why not."""
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    if done.returncode == 0:
        return {"extra MB": int(done.stdout) / 1e6}
    lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    return {"note": f"failed: {lines[-1]}"}
