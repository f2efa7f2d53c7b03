"""Compile stream.cpp for this processor and call it on tensors."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from machine import processor_field


class Unavailable(Exception):
    """There is no compiler to build the streams with, or it failed."""


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled streams, with the widest vectors that a run-time dispatch would choose here."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unavailable("g++ is not installed")
    flags = processor_field("flags").split()
    vectors = ["-mavx512f"] if "avx512f" in flags else ["-mavx2", "-mfma"] if "avx2" in flags else []
    source = Path(__file__).with_name("stream.cpp")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "stream.so"
        command = [compiler, "-O3", *vectors, "-fopenmp", "-shared", "-fPIC", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"g++ failed: {done.stderr.strip()}")
        return ctypes.CDLL(str(target))


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def triad(b: Tensor, c: Tensor, a: Tensor) -> None:
    """a = b + 3 c, in torch's number of threads."""
    library().triad(ctypes.c_long(a.numel()), torch.get_num_threads(), *map(pointer, (b, c, a)))


def four_two(reads: tuple[Tensor, Tensor, Tensor, Tensor], writes: tuple[Tensor, Tensor]) -> None:
    """Read four tensors of one size, write two."""
    pointers = map(pointer, (*reads, *writes))
    library().four_two(ctypes.c_long(writes[0].numel()), torch.get_num_threads(), *pointers)


class Mix:
    """Reads and writes in a given proportion, `size` floats for each part."""

    def __init__(self, size: int, reads: int, writes: int) -> None:
        self.size, self.reads, self.writes = size, reads, writes
        self.source, self.target = torch.ones(reads * size), torch.ones(writes * size)
        self.bytes = 4 * size * (reads + writes)

    def __call__(self) -> None:
        sizes = ctypes.c_long(self.size), self.reads, self.writes, torch.get_num_threads()
        library().mix(*sizes, pointer(self.source), pointer(self.target))
