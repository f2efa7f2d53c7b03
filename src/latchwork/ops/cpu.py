"""The C++ kernel: loads the shared library that the package's build left beside this package, and calls it."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os

import torch
from torch import Tensor

from latchwork.ops import abi
from latchwork.ops.abi import Problem, Rows
from latchwork.ops.parallel import Gradients

LARGE = 32 << 20  # bytes; from here on malloc takes fresh memory from the system every time
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


def _load() -> ctypes.CDLL | str | RuntimeError:
    """The library; or why there is none; or what is wrong with the one there is, which nothing else may replace.

    It is loaded after torch, whose OpenMP threads it then shares.
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
    library.latchwork_huge_pages.restype = None
    library.latchwork_layer_tape.restype = ctypes.c_int64
    if library.latchwork_isa() is None:
        return RuntimeError(_wrong_isa(library))
    return library


def _wrong_isa(library: ctypes.CDLL) -> str:
    compiled = itertools.takewhile(bool, map(library.latchwork_compiled_isa, map(ctypes.c_int64, itertools.count())))
    here = ", ".join(name.decode() for name in compiled if library.latchwork_runs_here(name))
    return f"LATCHWORK_ISA must be one of {here}, which run on this processor; got {os.environ['LATCHWORK_ISA']!r}"


_loaded = _load()
MISSING = _loaded if isinstance(_loaded, str) else None  # why there is no kernel, or None


def unfit(r: Tensor) -> str | None:
    """Why the kernel cannot take r, or None."""
    return MISSING if r.device.type == "cpu" else f"r is on {r.device}, not on the CPU"


def isa() -> str:
    """The instruction set that the kernel runs with: "avx512", "avx2" or "baseline"."""
    name: bytes = library().latchwork_isa()
    return name.decode()


def library() -> ctypes.CDLL:
    """The loaded kernel; an error that says why if there is none."""
    if isinstance(_loaded, ctypes.CDLL):
        return _loaded
    raise RuntimeError(str(_loaded))


def readable(a: Tensor) -> bool:
    """Whether the kernel may read a where it stands: an ordinary dense tensor whose numbers are those in memory."""
    ordinary = type(a) in (Tensor, torch.nn.Parameter) and a.device.type == "cpu" and a.layout is torch.strided
    return ordinary and (torch.compiler.is_compiling() or not a.is_neg())  # in a graph no tensor is a negated view


def empty(shape: torch.Size, like: Tensor) -> Tensor:
    """A tensor for the kernel to write, in large pages if it is large."""
    fresh = like.new_empty(shape)
    if (size := fresh.numel() * fresh.element_size()) >= LARGE:
        library().latchwork_huge_pages(ctypes.c_void_p(fresh.data_ptr()), ctypes.c_int64(size))
    return fresh


def inner_contiguous(a: Tensor, inner: int) -> Tensor:
    """`a` itself if its last `inner` dimensions are contiguous, whatever the strides before them; else a copy."""
    expected = 1
    for size, stride in zip(reversed(a.shape[-inner:]), reversed(a.stride()[-inner:]), strict=True):
        if size != 1 and stride != expected:
            return a.contiguous()
        expected *= size
    return a


def rows(a: Tensor | None, *, time: bool = True) -> Rows:
    """`a` (B, T, ...), or (B, ...) without time, as the kernel takes it; no address for None."""
    if a is None:
        return Rows(None, 0, 0)
    return Rows(a.data_ptr(), a.stride(0), a.stride(1) if time else 0)


def _problem(r: Tensor, s: Tensor, chunk: int) -> Problem:
    degree = 0 if r.dim() == s.dim() else s.shape[-1]
    batch, time, width = s.shape[:3]
    return Problem(
        dtype=DTYPES[s.dtype],
        batch=batch,
        time=time,
        width=width,
        degree=degree,
        threads=torch.get_num_threads(),
        chunk=chunk,
        r=rows(r),
        s=rows(s),
    )


def call(name: str, problem: ctypes.Structure) -> int:
    """Run a function of the kernel; what it returns, 0 where all went well."""
    return check(name, getattr(library(), name)(ctypes.byref(problem)))


def check(name: str, code: int) -> int:
    """What a function of the kernel returned; an error where it could not do its work."""
    if code == abi.NO_MEMORY:
        raise MemoryError(f"there is no memory for what {name} needs to work in")
    if code == abi.NO_SUCH_DTYPE:
        raise RuntimeError("the C++ kernel was built by a compiler without this dtype; use backend='torch'")
    return code


def _prepare(r: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return inner_contiguous(r, r.dim() - 2), inner_contiguous(s, s.dim() - 2)


def _prepare_start(*starts: Tensor | None) -> list[Tensor | None]:
    return [None if a is None else inner_contiguous(a, a.dim() - 1) for a in starts]


def forward(
    r: Tensor,
    s: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    *,
    chunk: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """Every state; shapes as in `reference_scan`. chunk: steps that run in parallel to others, 0 to choose."""
    x = empty(s.shape, s) if out is None else out
    if x.numel() == 0:
        return x
    r, s = _prepare(r, s)
    state_, x0_ = _prepare_start(state, x0)
    problem = _problem(r, s, chunk)
    problem.x, problem.reset = rows(x), rows(reset)
    problem.state, problem.x0 = rows(state_, time=False), rows(x0_, time=False)
    call("latchwork_forward", problem)
    return x


def backward(
    grad: Tensor,
    r: Tensor,
    s: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    *,
    chunk: int = 0,
    out: tuple[Tensor, Tensor] | None = None,
) -> Gradients:
    """The gradient of the sequential graph, ties shared evenly, from the states x that `forward` returned."""
    grad_r, grad_s = (empty(r.shape, r), empty(s.shape, s)) if out is None else out
    grad_state = state.new_zeros(state.shape)
    grad_x0 = None if reset is None else state.new_zeros(state.shape)
    if s.numel() == 0:
        return grad_r, grad_s, grad_state, grad_x0
    r, s = _prepare(r, s)
    grad, x = _prepare(grad, x)
    state_, x0_ = _prepare_start(state, x0)
    problem = _problem(r, s, chunk)
    problem.x, problem.reset, problem.grad = rows(x), rows(reset), rows(grad)
    problem.state, problem.x0 = rows(state_, time=False), rows(x0_, time=False)
    problem.grad_r, problem.grad_s = rows(grad_r), rows(grad_s)
    problem.grad_state, problem.grad_x0 = rows(grad_state, time=False), rows(grad_x0, time=False)
    call("latchwork_backward", problem)
    return grad_r, grad_s, grad_state, grad_x0


def compose(r: Tensor, s: Tensor, reset: Tensor | None, x0: Tensor | None) -> tuple[Tensor, Tensor]:
    """All T steps as one: what `algebra.collapse` returns, or another pair that maps every state alike."""
    whole_r = r.new_empty(r.shape[:1] + r.shape[2:])
    whole_s = s.new_empty(s.shape[:1] + s.shape[2:])
    if whole_s.numel() == 0:
        return whole_r, whole_s
    r, s = _prepare(r, s)
    (x0_,) = _prepare_start(x0)
    problem = _problem(r, s, 0)
    problem.reset, problem.x0 = rows(reset), rows(x0_, time=False)
    problem.whole_r, problem.whole_s = rows(whole_r, time=False), rows(whole_s, time=False)
    call("latchwork_compose", problem)
    return whole_r, whole_s
