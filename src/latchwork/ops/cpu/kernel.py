"""The C++ kernel: loads the shared library that the package's build left beside this package, and calls it."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import math
import os

import torch
from torch import Tensor

from latchwork.ops.cpu import abi
from latchwork.ops.cpu.abi import Rows

LARGE = 1 << 20  # bytes; from about here on malloc may take fresh memory from the system
KEPT = 512 << 20  # bytes of large tensors that are gone, at most, which the next large tensors use
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
# Kind and bits, as DLPack numbers them.
_DLPACK = {torch.float32: (2, 32), torch.float64: (2, 64), torch.bfloat16: (4, 16), torch.float16: (2, 16)}
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def _load() -> ctypes.CDLL | str | RuntimeError:
    """The library. Or a text: why there is none, so that other backends run. Or an error: what is wrong with it.

    It is loaded after torch, to share torch's OpenMP threads.
    """
    found = importlib.util.find_spec("latchwork._kernel")
    if found is None or found.origin is None:
        return "the package was installed without its C++ kernel; install it again where there is a C++ compiler"
    try:
        library = ctypes.CDLL(found.origin)
    except OSError as error:
        return f"the C++ kernel does not load: {error}"
    if what := abi.differs(library):
        return RuntimeError(f"the C++ kernel is of another version of latchwork: {what} differs; reinstall the package")
    library.latchwork_isa.restype = ctypes.c_char_p
    library.latchwork_compiled_isa.restype = ctypes.c_char_p
    library.latchwork_lend.restype = ctypes.c_void_p
    library.latchwork_idle_bytes.restype = ctypes.c_int64
    library.latchwork_layer_tape.restype = ctypes.c_int64
    if library.latchwork_isa() is None:
        return RuntimeError(_wrong_isa(library))
    return library


def _wrong_isa(library: ctypes.CDLL) -> str:
    compiled = itertools.takewhile(bool, map(library.latchwork_compiled_isa, map(ctypes.c_int64, itertools.count())))
    here = ", ".join(name.decode() for name in compiled if library.latchwork_runs_here(name))
    return f"LATCHWORK_ISA must be one of {here}, which run on this processor; got {os.environ['LATCHWORK_ISA']!r}"


_loaded = _load()
# Until glibc's malloc has seen a large block go, it gives freed memory back to the system at once, and the next tensor
# pays for fresh pages. After this one it keeps up to 64 MB. Nothing is written there.
torch.empty(31 << 20, dtype=torch.uint8)
_READABLE = (Tensor, torch.nn.Parameter)
MISSING = _loaded if isinstance(_loaded, str) else None  # why there is no kernel, or None


def unfit(a: Tensor, name: str = "a tensor") -> str | None:
    """Why the kernel cannot take a tensor, or None."""
    return MISSING if a.device.type == "cpu" else f"{name} is on {a.device}, not on the CPU"


def isa() -> str:
    """The instruction set that the kernel runs with: "avx512", "avx2" or "baseline"."""
    name: bytes = library().latchwork_isa()
    return name.decode()


def library() -> ctypes.CDLL:
    """The loaded kernel; an error that says why if there is none."""
    if isinstance(_loaded, ctypes.CDLL):
        return _loaded
    raise RuntimeError(str(_loaded))


def readable(*tensors: Tensor) -> bool:
    """Whether the kernel may read the memory of these: ordinary dense tensors on the CPU, and no negated views."""
    compiling = torch.compiler.is_compiling()  # in a graph no tensor is a negated view
    for a in tensors:
        if type(a) not in _READABLE or not a.is_cpu or a.layout is not torch.strided:
            return False
        if not compiling and a.is_neg():
            return False
    return True


def empty(shape: torch.Size, like: Tensor) -> Tensor:
    """A tensor for the kernel to write. If it is large, it takes the memory of one that is gone.

    The storage of a large tensor cannot be resized.
    """
    count = math.prod(shape)
    if count * like.element_size() < LARGE:
        return like.new_empty(shape)
    lent = library().latchwork_lend(*map(ctypes.c_int64, (count, *_DLPACK[like.dtype], KEPT)))
    if lent is None:
        raise MemoryError(f"there is no memory for a tensor of shape {tuple(shape)} and {like.dtype}")
    fresh: Tensor = torch.utils.dlpack.from_dlpack(_capsule(lent, b"dltensor", None))
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:  # type: ignore[attr-defined]
        fresh.fill_(math.nan)
    return fresh.view(shape)


def inner_contiguous(a: Tensor, inner: int) -> Tensor:
    """`a` itself if its last `inner` dimensions are contiguous, else a copy. The other strides may be any."""
    expected = 1
    for size, stride in zip(reversed(a.shape[-inner:]), reversed(a.stride()[-inner:]), strict=True):
        if size != 1 and stride != expected:
            return a.contiguous()
        expected *= size
    return a


def attach(problem: ctypes.Structure, *, time: bool, **tensors: Tensor | None) -> None:
    """Give a problem its tensors (B, T, ...), or (B, ...) without time, by name; None leaves the field empty."""
    for name, a in tensors.items():
        if a is not None:
            setattr(problem, name, Rows(a.data_ptr(), a.stride(0), a.stride(1) if time else 0))


def call(name: str, problem: ctypes.Structure) -> int:
    """Run a function of the kernel and return its code, 0 for success."""
    kernel = _loaded if isinstance(_loaded, ctypes.CDLL) else library()
    code: int = getattr(kernel, name)(ctypes.byref(problem))
    return check(name, code) if code else code


def check(name: str, code: int) -> int:
    """What a function of the kernel returned; an error where it could not do its work."""
    if code == abi.NO_MEMORY:
        raise MemoryError(f"{name} could not allocate the memory that it works in")
    if code == abi.NO_SUCH_DTYPE:
        raise RuntimeError("the C++ kernel was built by a compiler without this dtype; use backend='torch'")
    return code
