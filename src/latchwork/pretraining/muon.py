"""Muon for the matrices between embedding and head, AdamW for all else: one optimiser, one schedule, one checkpoint."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's: singular values go to between 0.7 and 1.2 in five rounds
ROUNDS = 5
LIKE_ADAM = 0.2  # the root mean square of an entry of AdamW's update, about: Moonshot's, so that one rate serves both


class Muon(torch.optim.AdamW):
    """AdamW but for groups with a "momentum": their matrices step along their momentum, made orthogonal.

    torch.optim.Muon does the same in bfloat16 alone, which most processors do not compute in; this one is in float32
    where there is no GPU.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of all groups."""
        groups = self.param_groups
        for group in groups:
            if "momentum" in group:
                for each in group["params"]:
                    if each.grad is not None:
                        self._step_matrix(each, each.grad, group)
        try:
            self.param_groups = [group for group in groups if "momentum" not in group]
            super().step(closure)
        finally:
            self.param_groups = groups

    def _step_matrix(self, each: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[each]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(each)
        state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(state["momentum_buffer"], group["momentum"])  # Nesterov's
        rate = group["lr"] * group["rate"]
        each.mul_(1 - rate * group["weight_decay"])
        each.add_(whole(update), alpha=-rate * LIKE_ADAM * max(each.shape) ** 0.5)


def whole(update: Tensor) -> Tensor:
    """`orthogonalise`; of a matrix that processes share, each makes the whole and keeps its part."""
    if isinstance(update, DTensor):
        return distribute_tensor(orthogonalise(update.full_tensor()), update.device_mesh, update.placements)
    return orthogonalise(update)


def orthogonalise(matrix: Tensor) -> Tensor:
    """Nearly the orthogonal matrix (rows or columns orthonormal) nearest to it, by Newton and Schulz's iteration.

    x <- (a + b x x^T + c (x x^T)^2) x, five times. Where x is at least twice as long as wide, the five factors are
    multiplied first, from x x^T alone, and x by their product once: the same with half of the arithmetic.
    """
    x = matrix.bfloat16() if matrix.is_cuda else matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    x = x.T if x.shape[0] > x.shape[1] else x
    x = x / (x.norm() + 1e-7)
    x = by_product(x) if x.shape[1] >= 2 * x.shape[0] and x.dtype != torch.bfloat16 else by_rounds(x)
    return (x.T if matrix.shape[0] > matrix.shape[1] else x).to(matrix.dtype)


def by_rounds(x: Tensor) -> Tensor:
    """The iteration as it is defined."""
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def by_product(x: Tensor) -> Tensor:
    """The same, to rounding: all factors are polynomials of one symmetric matrix, so they commute."""
    a, b, c = COEFFICIENTS
    square = x @ x.T
    product = None
    for last in reversed(range(ROUNDS)):
        factor = torch.addmm(square, square, square, beta=b, alpha=c)
        factor.diagonal().add_(a)
        product = factor if product is None else product @ factor
        if last:
            square = factor @ square @ factor
    assert product is not None
    return product @ x
