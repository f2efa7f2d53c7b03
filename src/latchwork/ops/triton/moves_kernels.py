# mypy: ignore-errors
"""The Triton kernels of moves of whole levels; `moves.py` launches them.

A program holds a block of units of one sequence and walks all of its time: it is (b, block). States are (BLOCK, PAD),
with PAD = N rounded up to a power of two; which level goes where is (BLOCK, PAD, PAD), from the choice, and no number
is read at an address that a choice gives. Everything else is as in scan_kernels.py.
"""

import triton
import triton.language as tl

from latchwork.ops.triton.scan_kernels import INF, add, maximum, read, tile


@triton.jit
def hits(choice, pointer, in_vector, PAD: tl.constexpr):
    """The choices, -1 in the padding, and where choice[:, a] is b."""
    chosen = tl.load(choice + pointer, mask=in_vector, other=-1).to(tl.int32)
    return chosen, chosen[:, :, None] == tl.arange(0, PAD)[None, None, :]


@triton.jit(do_not_specialize=["T"])
def move_kernel(
    choice, state, s, reset, x0, x, T, U, choice_b, choice_t, state_b, s_b, reset_b, reset_t, x0_b,
    N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, SENDS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write x[b, t] for every step."""
    b = tl.program_id(0).to(tl.int64)
    vector, in_vector, _, _ = tile(U, N, BLOCK, PAD, True)
    now = read(state + b * state_b + vector, in_vector, 0.0)
    if reset is not None:
        fresh = read(x0 + b * x0_b + vector, in_vector, 0.0)
    if s is not None:
        own = read(s + b * s_b + vector, in_vector, 0.0)
    for t in tl.range(b * 0, T, num_stages=STAGES):  # from a 0 of 64 bits, as offsets are long
        if reset is not None:
            now = tl.where(tl.load(reset + b * reset_b + t * reset_t), fresh, now)
        chosen, hit = hits(choice, b * choice_b + t * choice_t + vector, in_vector, PAD)
        if SENDS:  # hit[k, i]
            now = tl.reduce(tl.where(hit, now[:, :, None], 0.0), 1, maximum)
        else:  # hit[i, k]
            now = tl.reduce(tl.where(hit, now[:, None, :], -INF), 2, maximum)
            if s is not None:
                now = tl.where(chosen == N, own, now)
        now = now + 0.0  # a zero is +0
        tl.store(x + (b * T + t) * U * N + vector, now, mask=in_vector)


@triton.jit(do_not_specialize=["T"])
def move_back_kernel(
    grad, choice, x, state, s, reset, x0, grad_weights, grad_state, grad_s, grad_x0, T, U,
    grad_b, grad_t, choice_b, choice_t, state_b, s_b, reset_b, reset_t, x0_b,
    N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, SENDS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write every gradient, from the last step to the first."""
    b = tl.program_id(0).to(tl.int64)
    vector, in_vector, _, in_matrix = tile(U, N, BLOCK, PAD, True)
    width: tl.constexpr = N if s is None else N + 1
    matrix = vector[:, :, None] * width + tl.arange(0, PAD)[None, None, :]
    first = read(state + b * state_b + vector, in_vector, 0.0)
    carry = first * 0.0
    carry = tl.where(carry == carry, carry, 0.0)  # zeros, also where the state is not finite
    to_x0, to_s = carry, carry
    if reset is not None:
        fresh = read(x0 + b * x0_b + vector, in_vector, 0.0)
    if s is not None:
        own = read(s + b * s_b + vector, in_vector, 0.0)
    for back in tl.range(b * 0, T, num_stages=STAGES):
        t = T - 1 - back
        g = read(grad + b * grad_b + t * grad_t + vector, in_vector, 0.0) + carry
        before = read(x + (b * T + tl.maximum(t - 1, 0)) * U * N + vector, in_vector, 0.0)
        before = tl.where(t > 0, before, first)
        if reset is not None:
            cut = tl.load(reset + b * reset_b + t * reset_t)
            before = tl.where(cut, fresh, before)
        chosen, hit = hits(choice, b * choice_b + t * choice_t + vector, in_vector, PAD)
        out = grad_weights + (b * T + t) * U * N * width
        if SENDS:
            tl.store(out + matrix, before[:, :, None] * g[:, None, :], mask=in_matrix)
            carry = tl.reduce(tl.where(hit, g[:, None, :], 0.0), 2, add)
        else:
            tl.store(out + matrix, g[:, :, None] * before[:, None, :], mask=in_matrix)
            carry = tl.reduce(tl.where(hit, g[:, :, None], 0.0), 1, add)
            if s is not None:
                tl.store(out + vector * width + N, g * own, mask=in_vector)
                to_s += tl.where(chosen == N, g, 0.0)
        if reset is not None:
            to_x0 += tl.where(cut, carry, 0.0)
            carry = tl.where(cut, 0.0, carry)
    row = b * U * N + vector
    tl.store(grad_state + row, carry, mask=in_vector)
    if grad_s is not None:
        tl.store(grad_s + row, to_s, mask=in_vector)
    if grad_x0 is not None:
        tl.store(grad_x0 + row, to_x0, mask=in_vector)
