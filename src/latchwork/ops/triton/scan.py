"""The recurrence on a GPU, in Triton; the kernels are in `scan_kernels.py`, imported at first use.

Sequential in time, parallel over sequences and units. When those are too few to fill the GPU and T is long, time is
cut into chunks, and the result is the same bit for bit:

- forward: every chunk is composed into one step; a scan of these few steps gives the state before each chunk; then
  all chunks run at once.
- backward: sums of gradients depend on their order, so nothing is composed. Every chunk is unwound from a carry of
  +inf. Where what it sends on is finite, nothing of the carry came through, and it is right whatever the carry is. A
  walk from the last chunk to the first, which unwinds again those that a latch was held through, gives every chunk
  its true carry; then all chunks run at once.

Only the gradient of x0 is summed chunk by chunk, and may differ from the loop's in the last bits. So may the
gradients of degree n, chunked or not: the sum over the rows of a matrix has an order of its own.
"""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

SHORTEST_CHUNK = 64  # steps; below, launching and composing cost more than they save
LARGEST_DEGREE = 256  # a matrix is one tile, in registers
FEWEST_CHUNKS = 4  # chunks read the input twice; fewer than these do not repay it
PROGRAMS_PER_PROCESSOR = 8  # enough to hide the latency of memory


def unfit(r: Tensor, name: str = "r") -> str | None:
    """Why this backend cannot take r, or None."""
    if not r.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"{name} is on {r.device}; Triton needs a GPU, or TRITON_INTERPRET=1 in the environment from the start"
    if find_spec("triton") is None:
        return "triton is not installed; pip install triton"
    if r.dim() == 5 and r.shape[-2] > LARGEST_DEGREE:
        return f"{name} has degree {r.shape[-2]}; the Triton kernels go up to {LARGEST_DEGREE}"
    return None


def forward(
    r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, chunk: int | None = None
) -> Tensor:
    """Every state of x_t = (r_t (x) x_{t-1}) (+) s_t from x_{-1} = state; shapes and law are `reference_scan`'s.

    chunk: the steps of a chunk; 0 for a single one; None to choose by the shape and the GPU.
    """
    from latchwork.ops.triton.scan_kernels import scan_kernel

    x = torch.empty_like(s, memory_format=torch.contiguous_format)
    if x.numel() == 0:
        return x
    plan = _Plan.of(r, chunk)
    states = state.unsqueeze(1)  # (B, chunks, ...): the state before each chunk
    if plan.chunks > 1:
        head = slice(0, (plan.chunks - 1) * plan.length)
        whole = _compose_chunks(r[:, head], s[:, head], None if reset is None else reset[:, head], x0, plan.length)
        states = torch.cat([states, forward(whole.r, whole.s, state, whole.reset, x0, chunk=0)], 1)
    with device_of(r):
        scan_kernel[plan.grid](
            x=x,
            **strided("bt", r=r, s=s, reset=reset),
            **strided("bc", state=states),
            **strided("b", x0=x0),
            **plan.arguments,
        )
    return x


def backward(
    grad: Tensor,
    r: Tensor,
    s: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of r, s, state and x0 (None without reset), given that of x = forward(...): those of the loop.

    A tie is shared evenly. The carry between steps is float32 for the half types. chunk: as in `forward`.
    """
    from latchwork.ops.triton.scan_kernels import backward_kernel, carry_kernel

    grad_r = torch.empty_like(r, memory_format=torch.contiguous_format)
    grad_s = torch.empty_like(s, memory_format=torch.contiguous_format)
    if s.numel() == 0:
        return grad_r, grad_s, state.new_zeros(state.shape), None if x0 is None else x0.new_zeros(x0.shape)
    plan = _Plan.of(r, chunk)
    wide = torch.promote_types(r.dtype, torch.float32)
    carry_in = torch.full((s.shape[0], plan.chunks, *s.shape[2:]), torch.inf, dtype=wide, device=r.device)
    carry_in[:, -1] = 0.0  # no step follows the last chunk
    carry_out = torch.empty_like(carry_in)
    grad_x0 = None if reset is None else torch.empty_like(carry_in)  # of each chunk
    arguments = {
        "carry_in": carry_in,
        "carry_out": carry_out,
        "x": x.contiguous(),
        **strided("bt", grad=grad, r=r, s=s, reset=reset),
        **strided("b", state=state, x0=x0),
        **plan.arguments,
    }
    with device_of(r):
        if plan.chunks > 1:
            backward_kernel[plan.grid](grad_r=None, grad_s=None, grad_x0=None, **arguments)
            carry_kernel[s.shape[0], plan.grid[1]](**arguments)
        backward_kernel[plan.grid](grad_r=grad_r, grad_s=grad_s, grad_x0=grad_x0, **arguments)
    grad_state = carry_out[:, 0].to(r.dtype).contiguous()
    return grad_r, grad_s, grad_state, None if grad_x0 is None else grad_x0.sum(1).to(r.dtype)


def compose(
    r: Tensor, s: Tensor, reset: Tensor | None, x0: Tensor | None, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """All T steps as one: R, S of shapes (B, D), (B, D) or (B, U, N, N), (B, U, N). T = 0 gives the identity.

    A slice with a reset is constant: R = -inf. That still lets a NaN through; the caller must reset there as well.
    chunk: as in `forward`.
    """
    plan = _Plan.of(r, chunk)
    whole = _compose_chunks(r, s, reset, x0, plan.length)
    if plan.chunks > 1:
        return compose(whole.r, whole.s, whole.reset, x0, chunk=0)
    return whole.r[:, 0], whole.s[:, 0]


@dataclass(frozen=True)
class _Steps:
    """Chunks as steps: r (B, chunks, ...), s (B, chunks, ...) and which of them hold a reset, (B, chunks)."""

    r: Tensor
    s: Tensor
    reset: Tensor | None


def _compose_chunks(r: Tensor, s: Tensor, reset: Tensor | None, x0: Tensor | None, length: int) -> _Steps:
    from latchwork.ops.triton.scan_kernels import compose_kernel

    plan = _Plan.of(r, length)
    R = r.new_empty(r.shape[0], plan.chunks, *r.shape[2:])
    S = s.new_empty(s.shape[0], plan.chunks, *s.shape[2:])
    if S.numel() > 0:
        with device_of(r):
            compose_kernel[(*plan.grid, plan.arguments["N"])](
                R=R, S=S, **strided("bt", r=r, s=s, reset=reset), **strided("b", x0=x0), **plan.arguments
            )
    if reset is None:
        return _Steps(R, S, None)
    padded = torch.nn.functional.pad(reset, (0, plan.chunks * plan.length - reset.shape[1]))
    return _Steps(R, S, padded.reshape(R.shape[0], plan.chunks, plan.length).any(-1))


@dataclass(frozen=True)
class _Plan:
    """How T is cut into chunks and the units into blocks: the grid, and the kernels' arguments that say it."""

    length: int  # steps of a chunk; the last one may be shorter
    chunks: int  # at least one
    grid: tuple[int, int]
    arguments: dict[str, Any]

    @classmethod
    def of(cls, r: Tensor, chunk: int | None) -> _Plan:
        matrix = r.dim() == 5
        B, T, units = r.shape[:3]
        N = r.shape[-1] if matrix else 1
        pad = power_of_two(N)
        block = min(power_of_two(units), max(1, 512 // pad**2) if matrix else 128)
        blocks, tile = math.ceil(units / block), block * pad**2
        if chunk is None:
            chunk = _chunk_length(B * blocks * N, T, r.device)
        length = max(1, min(chunk or T, T))
        chunks = max(1, math.ceil(T / length))
        arguments = {
            "T": T,
            "length": length,
            "chunks": chunks,
            "U": units,
            "N": N,
            "BLOCK": block,
            "PAD": pad,
            "MATRIX": matrix,
            # Steps whose loads are in flight at once, in shared memory; the largest tiles would not fit there.
            "STAGES": 4 if tile <= 4096 else 1,
            # Two numbers a thread: copies to shared memory move at least 4 bytes, two halves. More in large tiles.
            "num_warps": max(1, min(8, tile // 64), min(32, tile // 1024)),
            "enable_fp_fusion": False,  # a fused g / 2 + grad would round once where the loop rounds twice
        }
        return cls(length, chunks, (B * chunks, blocks), arguments)


def device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device, which must be the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def power_of_two(n: int) -> int:
    """The least that is not less than n, at least 1."""
    return 1 << max(0, n - 1).bit_length()


def _chunk_length(programs: int, T: int, device: torch.device) -> int:
    """Steps of a chunk such that the chunks fill the GPU, or T where the programs do so already or T is short.

    At least sqrt(T), which makes the walk over the chunks no longer than a chunk.
    """
    if device.type != "cuda" or programs == 0:
        return T
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = PROGRAMS_PER_PROCESSOR * processors // programs
    if wanted < FEWEST_CHUNKS:
        return T
    length = max(SHORTEST_CHUNK, math.isqrt(T), math.ceil(T / wanted))
    return length if FEWEST_CHUNKS * length <= T else T


def strided(dimensions: str, **tensors: Tensor | None) -> dict[str, Any]:
    """Kernel arguments: each tensor and the strides of its leading dimensions, as name_b, name_t, ...

    The dimensions of a unit, which follow, must be contiguous: a tensor where they are not is copied. A slice such as
    fused[..., :D] is not copied, nor is an x0 expanded over B.
    """
    arguments: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.numel() > 0 and not tensor[(0,) * len(dimensions)].is_contiguous():
            tensor = tensor.contiguous()
        arguments[name] = tensor
        for index, dimension in enumerate(dimensions):
            arguments[f"{name}_{dimension}"] = 0 if tensor is None else tensor.stride(index)
    return arguments
