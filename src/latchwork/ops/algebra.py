"""The mathematics: steps x -> (r (x) x) (+) s, and how they compose.

A step is a pair (r, s). Degree one: r and s share one shape (..., D) and act elementwise, x -> max(min(r, x), s).
Degree n: r is (..., N, N), s is (..., N), and r (x) x is the max-min matrix product. The number of dimensions tells
which. Minimum and maximum select and never round, so every law below holds bit for bit; a NaN spreads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.ops.transforms import forward_mode

Step = tuple[Tensor, Tensor]  # (r, s)


def oplus(a: Tensor, b: Tensor) -> Tensor:
    """a (+) b, the elementwise maximum."""
    return _pair(a, b).amax(-1) if forward_mode() else torch.maximum(a, b)


def odot(a: Tensor, b: Tensor) -> Tensor:
    """a (.) b, the elementwise minimum."""
    return _pair(a, b).amin(-1) if forward_mode() else torch.minimum(a, b)


def _pair(a: Tensor, b: Tensor) -> Tensor:
    """Both side by side. torch's tangent of maximum is b' + (a' - b'), which rounds; that of amax selects."""
    return torch.stack(torch.broadcast_tensors(a, b), -1)  # type: ignore[no-untyped-call]


def otimes(a: Tensor, b: Tensor) -> Tensor:
    """a (x) b, the max-min matrix product: (..., I, K) and (..., K, J) to (..., I, J).

    >>> otimes(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[5.0], [-5.0]]))
    tensor([[0.],
            [1.]])
    """
    return odot(a.unsqueeze(-1), b.unsqueeze(-3)).amax(-2)


class _SharedMaximum(torch.autograd.Function):
    """amax over the last dimension, its gradient shared evenly by the entries that attain it; the others get exactly 0.

    A NaN equals nothing, so nothing attains it: then all entries get a NaN.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(candidates: Tensor) -> Tensor:
        return candidates.amax(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        candidates, y = ctx.saved_tensors
        hit = candidates == y.unsqueeze(-1)
        count = hit.sum(-1, keepdim=True)
        share = (grad.unsqueeze(-1) / count).masked_fill(count == 0, torch.nan)
        return torch.where(hit | (count == 0), share, 0.0)


def apply(r: Tensor, s: Tensor, x: Tensor) -> Tensor:
    """One step from the state x. At a tie the gradient is shared evenly among the arguments that attain the value."""
    if r.dim() == s.dim():
        return oplus(odot(r, x), s)
    candidates = torch.cat([odot(r, x.unsqueeze(-2)), s.unsqueeze(-1)], dim=-1)  # (..., N, N + 1): n minima and s
    if not candidates.requires_grad or forward_mode():
        return candidates.amax(-1)
    y: Tensor = _SharedMaximum.apply(candidates)  # type: ignore[no-untyped-call]
    return y


def compose(first: Step, then: Step) -> Step:
    """The one step that does `first` and afterwards `then`; associative."""
    (r1, s1), (r2, s2) = first, then
    if r1.dim() == s1.dim():
        return odot(r2, r1), oplus(odot(r2, s1), s2)
    return otimes(r2, r1), apply(r2, s2, s1)


def identity(r: Tensor, s: Tensor, low: float = -torch.inf, high: float = torch.inf) -> Step:
    """The step, in the shapes of r and s, that changes no state with values in [low, high].

    >>> identity(torch.zeros(2, 2), torch.zeros(2), low=0, high=1)
    (tensor([[1., 0.],
            [0., 1.]]), tensor([0., 0.]))
    """
    if r.dim() == s.dim():
        return torch.full_like(r, high), torch.full_like(s, low)
    same = torch.full_like(r, low)
    same.diagonal(dim1=-2, dim2=-1).fill_(high)
    return same, torch.full_like(s, low)


def collapse(r: Tensor, s: Tensor) -> Step:
    """All T steps of r (B, T, ...) and s (B, T, ...) as one step, in log2 T rounds of `compose`."""
    if r.shape[1] == 0:
        return identity(r.sum(1), s.sum(1))
    while (steps := r.shape[1]) > 1:
        paired = steps // 2 * 2
        r2, s2 = compose((r[:, 0:paired:2], s[:, 0:paired:2]), (r[:, 1:paired:2], s[:, 1:paired:2]))
        r, s = torch.cat([r2, r[:, paired:]], 1), torch.cat([s2, s[:, paired:]], 1)
    return r[:, 0], s[:, 0]
