"""minmax_scan and minmax_step: check the arguments, choose a backend, define the gradient once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.ops import dispatch, distributed
from latchwork.ops.algebra import apply
from latchwork.ops.arguments import autocasts, check_alike, check_arguments, check_dense, expand, promote
from latchwork.ops.reference import reference_scan
from latchwork.ops.transforms import forward_mode

_ZERO = torch.zeros((), device="cpu")  # a tensor: adding the number 0.0 costs twice as much


def minmax_scan(
    r: Tensor,
    s: Tensor,
    x0: Tensor,
    *,
    reset: Tensor | None = None,
    state: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Run x_t = max(min(r_t, x_{t-1}), s_t) from x0 and return every state.

    Degree one: r and s (B, T, D), x0 (B, D) or (D,); returns x (B, T, D).
    Degree n: r (B, T, U, N, N), s (B, T, U, N), x0 (B, U, N) or (U, N); returns x (B, T, U, N), with
    x_t[i] = max(s_t[i], max_k min(r_t[i, k], x_{t-1}[k])).

    reset: (B, T) bool. Where true, the state before that step is x0 again, so that sequences packed into one row do not
    see each other: no value, no NaN and no gradient crosses.
    state: like x0, the state to start from when it is not x0, as in the second chunk of a stream whose resets return
    to x0.
    backend: "auto", "reference" (the definition, a loop), "torch" (any device), "cpu" (C++) or "triton" (GPU). One that
    is asked for by name and cannot run is an error, never replaced. "auto" takes the definition under the transforms of
    torch.func and for forward-mode derivatives: there a tangent follows the argument that is selected, ties shared.

    Minimum and maximum select and never round: every backend returns the same bits, however the scan is bracketed. A
    NaN spreads, a zero is written as +0. The gradient is that of the sequential loop, a tie shared evenly, in every
    backend. Under autocast, r and s take the wider of their types and x0 follows.

    >>> r, s = torch.tensor([[[9.0], [9.0], [1.0]]]), torch.tensor([[[5.0], [0.0], [0.0]]])
    >>> minmax_scan(r, s, torch.zeros(1)).flatten()
    tensor([5., 5., 1.])
    """
    check_dense(r=r, s=s, x0=x0, reset=reset, state=state)
    if autocasts(r):
        r, s, x0, state = promote(r, s, x0, state)
    check_arguments(r, s, x0, reset, state)
    x0 = expand(x0, s.shape[:1] + s.shape[2:])
    state = x0 if state is None else expand(state, x0.shape)
    start = None if reset is None else x0
    name = dispatch.choose("scan", backend, r, s, state, start)
    if distributed.is_split():
        return distributed.scan(r, s, state, reset, start, name)
    if dispatch.asked_for(backend) == "auto" and r.shape[1] == 1 and name != "reference":
        return _one_step(r, s, x0, state, reset)
    if name == "reference":
        return reference_scan(r, s, state, reset, start)
    x: Tensor = torch.ops.latchwork.minmax_scan(r, s, state, reset, start, name)
    return x


def _one_step(r: Tensor, s: Tensor, x0: Tensor, state: Tensor, reset: Tensor | None) -> Tensor:
    """`minmax_scan` of one step: plain torch operations, at less cost than those of an operation of our own."""
    if reset is not None:
        state = torch.where(reset.view(-1, *[1] * (x0.dim() - 1)), x0, state)
    return minmax_step(r[:, 0], s[:, 0], state).unsqueeze(1)


def minmax_step(r: Tensor, s: Tensor, x: Tensor) -> Tensor:
    """One step of `minmax_scan`, for decoding: r and s without T, x the state; returns the next state.

    Degree one: r, s (B, D), x (B, D) or (D,). Degree n: r (B, U, N, N), s (B, U, N), x (B, U, N) or (U, N).
    Plain torch operations: differentiable, and no cost of a custom op.

    >>> minmax_step(torch.tensor([[9.0, 1.0]]), torch.tensor([[0.0, 0.0]]), torch.tensor([[5.0, 5.0]]))
    tensor([[5., 1.]])
    """
    alike = r.shape == s.shape == x.shape and r.dtype is s.dtype is x.dtype
    if alike and r.dim() == 2 and r.is_floating_point() and not forward_mode():
        return torch.maximum(torch.minimum(r, x), s).add_(_ZERO)  # the usual case, at the least cost
    if autocasts(r):
        r, s, x, _ = promote(r, s, x, None)
    expected = s.shape if r.dim() == s.dim() else s.shape + s.shape[-1:]
    if r.shape != expected or (r.dim(), s.dim()) not in ((2, 2), (4, 3)):
        raise ValueError(
            "r and s must be (B, D) and (B, D), or (B, U, N, N) and (B, U, N); "
            f"got r {tuple(r.shape)} and s {tuple(s.shape)}"
        )
    if x.shape != s.shape and x.shape != s.shape[1:]:
        raise ValueError(f"x must be {tuple(s.shape)} or {tuple(s.shape[1:])}, as s; got {tuple(x.shape)}")
    check_alike(r, {"s": s, "x": x})
    return apply(r, s, expand(x, s.shape)) + 0.0


def _run(r: Tensor, s: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor | None, backend: str) -> Tensor:
    x: Tensor = dispatch.BACKENDS["scan"][backend].forward(r, s, state, reset, x0)
    return x


def _fake(r: Tensor, s: Tensor, *_: Any) -> Tensor:
    return s.new_empty(s.shape)


def _run_backward(
    grad: Tensor,
    r: Tensor,
    s: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor | None,
    x0: Tensor | None,
    backend: str,
) -> tuple[Tensor, ...]:
    """The gradients of r, s, state and x0; the last is empty where there is no reset."""
    grads = dispatch.BACKENDS["scan"][backend].backward(grad, r, s, x, state, reset, x0)
    # One layout, which the fake promises too: sums over what leaves here then have one order.
    return tuple(state.new_empty(0) if each is None else each.contiguous() for each in grads)


def _backward_fake(
    grad: Tensor, r: Tensor, s: Tensor, x: Tensor, state: Tensor, reset: Tensor | None, *_: Any
) -> tuple[Tensor, ...]:
    grad_x0 = state.new_empty(0 if reset is None else state.shape)
    return r.new_empty(r.shape), s.new_empty(s.shape), state.new_empty(state.shape), grad_x0


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    r, s, state, reset, x0, ctx.backend = inputs
    ctx.save_for_backward(r, s, output, state, reset, x0)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    dispatch.refuse_tangent(grad)
    *saved, x0 = ctx.saved_tensors
    grads = torch.ops.latchwork.minmax_scan_backward(grad, *saved, x0, ctx.backend)
    grad_r, grad_s, grad_state, grad_x0 = grads
    return grad_r, grad_s, grad_state, None, None if x0 is None else grad_x0, None


dispatch.register(
    "minmax_scan(Tensor r, Tensor s, Tensor state, Tensor? reset, Tensor? x0, str backend) -> Tensor",
    _run,
    _fake,
    _save,
    _gradient,
)
dispatch.register(
    "minmax_scan_backward(Tensor grad, Tensor r, Tensor s, Tensor x, Tensor state, Tensor? reset, Tensor? x0, "
    "str backend) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_backward,
    _backward_fake,
)
