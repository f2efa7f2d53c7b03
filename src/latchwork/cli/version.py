"""`latchwork version`: the version, and with --all what a bug report needs."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

NEEDED = ("torch", "numpy", "safetensors", "filelock", "rich", "typer")
OPTIONAL = {  # by the extra that brings them
    "triton": ("triton",),
    "hf": ("transformers", "accelerate"),
    "baselines": ("transformers", "xlstm", "mlstm_kernels"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "automata": ("aalpy", "sympy"),
    "experiments": ("matplotlib", "scipy", "tensorboard"),
    "ray": ("ray",),
    "temporal": ("lark",),
    "lm": ("datasets", "pyarrow", "scipy", "tensorboard", "tokenizers", "zstandard"),
}
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "LATCHWORK_ISA", "CUDA_VISIBLE_DEVICES")


def show_version(
    everything: Annotated[
        bool, typer.Option("--all", help="also of Python, torch, the kernel and each extra: for bug reports")
    ] = False,
) -> None:
    """Print the version."""
    typer.echo(f"latchwork {_of('latchwork')}")
    if not everything:
        return
    import torch

    from latchwork.ops.cpu import kernel
    from latchwork.training.manifest import commit

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    lines = {
        "commit": commit() or "not a clone",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        "processor": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "kernel": kernel.MISSING or kernel.isa(),
        "gpu": gpu,
        **{name: _of(name) for name in NEEDED},
        **{f"[{extra}]": ", ".join(f"{name} {_of(name)}" for name in names) for extra, names in OPTIONAL.items()},
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        typer.echo(f"{name:{width}}  {value}")


def _of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
