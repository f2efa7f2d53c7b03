"""Compile kernels for a GPU that is not there: in a process of its own, without Triton's interpreter."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

TYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.bool: "i1",
    torch.int64: "i64",
}


def run(script, *arguments, **variables):
    """Run Python in a process without the interpreter, which finds this file; returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | variables
    paths = [str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Compiled:
    """Stands in for a kernel and compiles, as it is launched, what it would have run; prints its name."""

    def __init__(self, kernel, capability):
        self.kernel, self.capability = kernel, capability

    def __getitem__(self, grid):
        return self.launch

    def launch(self, **given):
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        signature = {}
        for each in self.kernel.params:
            value = given[each.name]
            tensor = isinstance(value, torch.Tensor)
            constant = each.is_constexpr or value is None
            signature[each.name] = "constexpr" if constant else "*" + TYPES[value.dtype] if tensor else "i32"
        constants = {name: given[name] for name, kind in signature.items() if kind == "constexpr"}
        options = {name: value for name, value in given.items() if name not in signature}
        target = GPUTarget("cuda", self.capability, 32)
        compiled = triton.compile(ASTSource(self.kernel, signature, constants), target=target, options=options)
        ptx = compiled.asm["ptx"]
        assert self.kernel.__name__ in ptx, "no code"
        assert ".ftz" not in ptx, "code that flushes small numbers to zero"
        assert compiled.metadata.shared <= 48 * 1024, compiled.metadata.shared
        if self.kernel.__name__ == "scan_kernel":
            assert re.search(r"add\.rn\.f(32|64)[^;]*, 0[fd]0+;", ptx), "the + 0.0 that makes a zero positive is gone"
        print(self.kernel.__name__)


def replace(module, names):
    """Let a module's kernels be compiled where they would have been launched, for the capability that is asked for."""
    for name in names:
        setattr(module, name, Compiled(getattr(module, name), int(sys.argv[1])))
