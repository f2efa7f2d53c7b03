# mypy: ignore-errors
"""The Triton kernels of the MinMax recurrence; `scan.py` launches them and says what they are for.

A program holds a block of units of one sequence b and walks the steps of one chunk c: it is (b * chunks + c, block).
Degree one (MATRIX false) has one number a unit, and every tile is (BLOCK,). Degree n has vectors (BLOCK, PAD) and
matrices (BLOCK, PAD, PAD), with PAD = N rounded up to a power of two. Only `tile`, `step` and `step_backward` differ.
A tensor is a pointer and the strides of its leading dimensions; those of a unit are contiguous. One that is None is
absent, and the compiler drops what would use it. Halves are computed in float32.

Reductions are `tl.reduce`: `tl.max` would ignore a NaN, and neither it nor `tl.sum` can be interpreted once Triton has
been imported without TRITON_INTERPRET, as torch.compile may do.
"""

import triton
import triton.language as tl

INF = tl.constexpr(float("inf"))


@triton.jit
def minimum(a, b):
    """NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum(a, b):
    """NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def add(a, b):
    """For `tl.reduce`."""
    return a + b


@triton.jit
def read(pointer, mask, other):
    """Load in the type of computation: float64 as it is, everything else in float32."""
    value = tl.load(pointer, mask=mask, other=other)
    return value if value.dtype == tl.float64 else value.to(tl.float32)


@triton.jit
def tile(U, N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, MATRIX: tl.constexpr):
    """Offsets and masks of this program's units: those of vectors (state, s, x), then those of matrices (r)."""
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if MATRIX:
        i = tl.arange(0, PAD)
        vector = unit[:, None] * N + i[None, :]
        in_vector = (unit < U)[:, None] & (i < N)[None, :]
        matrix = vector[:, :, None] * N + i[None, None, :]
        return vector, in_vector, matrix, in_vector[:, :, None] & (i < N)[None, None, :]
    else:
        return unit, unit < U, unit, unit < U


@triton.jit
def span(T, length, chunks):
    """This program's sequence b and chunk c, and the chunk's steps [start, stop); 64 bits, as offsets are long."""
    program = tl.program_id(0).to(tl.int64)
    chunk = program % chunks
    return program // chunks, chunk, chunk * length, tl.minimum(chunk * length + length, T)


@triton.jit
def step(r, s, x, MATRIX: tl.constexpr):
    """max(min(r, x), s), or max(max_k min(r[i, k], x[k]), s[i]). Padding is -inf, which no maximum sees."""
    if MATRIX:
        return maximum(tl.reduce(minimum(r, x[:, None, :]), 2, maximum), s)
    else:
        return maximum(minimum(r, x), s)


@triton.jit
def portion(g, tie, lost):
    """What one of two arguments gets of a gradient: half at a tie, nothing if it lost, all otherwise (NaN included)."""
    return tl.where(tie, g * 0.5, tl.where(lost, 0.0, g))


@triton.jit
def step_backward(g, r, s, before, after, MATRIX: tl.constexpr):
    """Gradients of r, s and before, where g is that of after = step(r, s, before).

    Degree n shares g evenly among the arguments that equal their maximum. r is padded with NaN, which equals nothing;
    s and after with 0, which are equal, so that a padded row has its one winner and passes nothing on.
    """
    if MATRIX:
        x = before[:, None, :]
        m = minimum(r, x)
        m_wins = m == after[:, :, None]
        s_wins = s == after
        count = tl.reduce(m_wins.to(tl.int32), 2, add) + s_wins.to(tl.int32)
        winners = tl.maximum(count, 1).to(g.dtype)
        share = g / winners if g.dtype == tl.float64 else tl.div_rn(g, winners)
        loser = tl.where(count == 0, float("nan"), 0.0).to(g.dtype)  # the maximum is NaN
        grad_s = tl.where(s_wins, share, loser)
        grad_m = tl.where(m_wins, share[:, :, None], loser[:, :, None])
    else:
        x = before
        m = minimum(r, x)
        grad_s = portion(g, m == s, s < m)
        grad_m = portion(g, m == s, m < s)
    grad_r = portion(grad_m, r == x, r > x)
    grad_x = portion(grad_m, r == x, x > r)
    return grad_r, grad_s, tl.reduce(grad_x, 1, add) if MATRIX else grad_x


@triton.jit(do_not_specialize=["T", "length", "chunks"])
def scan_kernel(
    r, s, state, reset, x0, x, T, length, chunks, U,
    r_b, r_t, s_b, s_t, state_b, state_c, reset_b, reset_t, x0_b,
    N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, MATRIX: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write x[b, t] for every step of chunk c, from state[b, c], the state before the chunk."""
    b, c, start, stop = span(T, length, chunks)
    vector, in_vector, matrix, in_matrix = tile(U, N, BLOCK, PAD, MATRIX)
    now = read(state + b * state_b + c * state_c + vector, in_vector, -INF)
    if reset is not None:
        fresh = read(x0 + b * x0_b + vector, in_vector, -INF)
    for t in tl.range(start, stop, num_stages=STAGES):
        if reset is not None:
            now = tl.where(tl.load(reset + b * reset_b + t * reset_t), fresh, now)
        r_now = read(r + b * r_b + t * r_t + matrix, in_matrix, -INF)
        s_now = read(s + b * s_b + t * s_t + vector, in_vector, -INF)
        now = step(r_now, s_now, now, MATRIX) + 0.0  # a zero is +0
        tl.store(x + (b * T + t) * U * N + vector, now, mask=in_vector)


@triton.jit(do_not_specialize=["T", "length", "chunks"])
def compose_kernel(
    r, s, reset, x0, R, S, T, length, chunks, U,
    r_b, r_t, s_b, s_t, reset_b, reset_t, x0_b,
    N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, MATRIX: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write R[b, c] and S[b, c], the one step that equals chunk c.

    S is where the chunk takes -inf; column j of R is where it takes column j of the identity if nothing is written
    (s = -inf). So composing is scanning: program axis 2 is the column, and no N x N x N tile is ever made.
    """
    b, c, start, stop = span(T, length, chunks)
    column = tl.program_id(2)
    vector, in_vector, matrix, in_matrix = tile(U, N, BLOCK, PAD, MATRIX)
    dtype: tl.constexpr = tl.float64 if R.dtype.element_ty == tl.float64 else tl.float32
    S_now = tl.full(vector.shape, -INF, dtype)
    R_now = tl.where(vector % N == column, INF, S_now)
    nothing = S_now
    if reset is not None:
        fresh = read(x0 + b * x0_b + vector, in_vector, -INF)
    for t in tl.range(start, stop, num_stages=STAGES):
        if reset is not None:
            cut = tl.load(reset + b * reset_b + t * reset_t)
            R_now = tl.where(cut, -INF, R_now)
            S_now = tl.where(cut, fresh, S_now)
        r_now = read(r + b * r_b + t * r_t + matrix, in_matrix, -INF)
        s_now = read(s + b * s_b + t * s_t + vector, in_vector, -INF)
        R_now = step(r_now, nothing, R_now, MATRIX)
        S_now = step(r_now, s_now, S_now, MATRIX)
    out = (b * chunks + c) * U * N
    tl.store(R + out * N + vector * N + column, R_now + 0.0, mask=in_vector)
    if column == 0:
        tl.store(S + out + vector, S_now + 0.0, mask=in_vector)


@triton.jit
def unwind(
    carry, grad, r, s, x, state, reset, x0, grad_r, grad_s, b, start, stop, T, U,
    grad_b, grad_t, r_b, r_t, s_b, s_t, state_b, reset_b, reset_t, x0_b,
    N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, MATRIX: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Walk steps stop-1 .. start backwards; carry is the gradient that later steps send to x[b, stop-1].

    Returns the carry to x[b, start-1] and the sum of what the resets sent to x0. Writes grad_r and grad_s if given.
    """
    vector, in_vector, matrix, in_matrix = tile(U, N, BLOCK, PAD, MATRIX)
    first = read(state + b * state_b + vector, in_vector, 0.0)
    if reset is not None:
        fresh = read(x0 + b * x0_b + vector, in_vector, 0.0)
    to_x0 = tl.full(carry.shape, 0.0, carry.dtype)
    after = read(x + (b * T + stop - 1) * U * N + vector, in_vector, 0.0)
    for back in tl.range(0, stop - start, num_stages=STAGES):
        t = stop - 1 - back
        row = (b * T + t) * U * N
        g = read(grad + b * grad_b + t * grad_t + vector, in_vector, 0.0) + carry
        r_now = read(r + b * r_b + t * r_t + matrix, in_matrix, float("nan"))
        s_now = read(s + b * s_b + t * s_t + vector, in_vector, 0.0)
        before = read(x + (b * T + tl.maximum(t - 1, 0)) * U * N + vector, in_vector, 0.0)
        before = tl.where(t > 0, before, first)
        origin = before
        if reset is not None:
            cut = tl.load(reset + b * reset_b + t * reset_t)
            origin = tl.where(cut, fresh, before)
        r_grad, s_grad, carry = step_backward(g, r_now, s_now, origin, after, MATRIX)
        if grad_r is not None:
            tl.store(grad_r + row * (N if MATRIX else 1) + matrix, r_grad, mask=in_matrix)
            tl.store(grad_s + row + vector, s_grad, mask=in_vector)
        if reset is not None:
            to_x0 += tl.where(cut, carry, 0.0)
            carry = tl.where(cut, 0.0, carry)
        after = before
    return carry, to_x0


@triton.jit(do_not_specialize=["T", "length", "chunks"])
def backward_kernel(
    carry_in, carry_out, grad, r, s, x, state, reset, x0, grad_r, grad_s, grad_x0, T, length, chunks, U,
    grad_b, grad_t, r_b, r_t, s_b, s_t, state_b, reset_b, reset_t, x0_b,
    N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, MATRIX: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Unwind chunk c from carry_in[b, c]; write carry_out[b, c] and, if given, grad_r, grad_s and grad_x0[b, c]."""
    b, c, start, stop = span(T, length, chunks)
    vector, in_vector, _, _ = tile(U, N, BLOCK, PAD, MATRIX)
    out = (b * chunks + c) * U * N + vector
    carry, to_x0 = unwind(
        read(carry_in + out, in_vector, 0.0), grad, r, s, x, state, reset, x0, grad_r, grad_s, b, start, stop, T, U,
        grad_b, grad_t, r_b, r_t, s_b, s_t, state_b, reset_b, reset_t, x0_b, N, BLOCK, PAD, MATRIX, STAGES,
    )  # fmt: skip
    tl.store(carry_out + out, carry, mask=in_vector)
    if grad_x0 is not None:
        tl.store(grad_x0 + out, to_x0, mask=in_vector)


@triton.jit(do_not_specialize=["T", "length", "chunks"])
def carry_kernel(
    carry_in, carry_out, grad, r, s, x, state, reset, x0, T, length, chunks, U,
    grad_b, grad_t, r_b, r_t, s_b, s_t, state_b, reset_b, reset_t, x0_b,
    N: tl.constexpr, BLOCK: tl.constexpr, PAD: tl.constexpr, MATRIX: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write carry_in[b, c] for every chunk, given carry_out[b, c], what the chunk sends on when it receives +inf.

    Where carry_out is finite, what was received did not matter, and it is right; a block that has another lane unwinds
    its chunk again from the true carry. One program walks all the chunks, from the last to the first.
    """
    b = tl.program_id(0).to(tl.int64)
    vector, in_vector, _, _ = tile(U, N, BLOCK, PAD, MATRIX)
    carry = read(carry_in + (b * chunks + chunks - 1) * U * N + vector, in_vector, 0.0)
    for back in range(0, chunks - 1):
        c = (chunks - 1 - back).to(tl.int64)
        out = (b * chunks + c) * U * N + vector
        sent = read(carry_out + out, in_vector, 0.0)
        if tl.reduce((tl.abs(sent) < INF).to(tl.int32), None, minimum) == 0:
            start, stop = c * length, tl.minimum(c * length + length, T)
            carry = unwind(
                carry, grad, r, s, x, state, reset, x0, None, None, b, start, stop, T, U,
                grad_b, grad_t, r_b, r_t, s_b, s_t, state_b, reset_b, reset_t, x0_b, N, BLOCK, PAD, MATRIX, STAGES,
            )[0]  # fmt: skip
        else:
            carry = sent
        tl.store(carry_in + out - U * N, carry, mask=in_vector)
