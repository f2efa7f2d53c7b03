"""Muon for the matrices between embedding and head, AdamW for all else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's: singular values go to between 0.7 and 1.2 in five rounds
ROUNDS = 5
LIKE_ADAM = 0.2  # the root mean square of an entry of AdamW's update, about: Moonshot's, so that one rate serves both


class Muon(torch.optim.AdamW):
    """AdamW, but matrices in groups with a "momentum" step along their momentum, made orthogonal.

    One optimiser means one schedule and one checkpoint. torch.optim.Muon computes in bfloat16 alone, which most
    processors do not have; this one computes in float32 where there is no GPU.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of all groups."""
        groups = self.param_groups
        for group in groups:
            if "momentum" in group:
                for each in group["params"]:
                    if each.grad is not None:
                        self._step_matrix(each, group)
        try:
            self.param_groups = [group for group in groups if "momentum" not in group]
            super().step(closure)
        finally:
            self.param_groups = groups

    def _step_matrix(self, matrix: Tensor, group: dict[str, Any]) -> None:
        if not self.state[matrix]:
            self.state[matrix] = {"momentum_buffer": torch.zeros_like(matrix)}
        gradient, buffer = matrix.grad, self.state[matrix]["momentum_buffer"]
        assert gradient is not None
        buffer.lerp_(gradient, 1 - group["momentum"])
        update = _on_whole(gradient.lerp(buffer, group["momentum"]))  # Nesterov's momentum
        rate = group["lr"] * group["rate"]
        matrix.mul_(1 - rate * group["weight_decay"])
        matrix.add_(update, alpha=-rate * LIKE_ADAM * max(matrix.shape) ** 0.5)


def _on_whole(matrix: Tensor) -> Tensor:
    """`orthogonalise`; where processes share a matrix, each computes the whole and keeps its part."""
    if isinstance(matrix, DTensor):
        return distribute_tensor(orthogonalise(matrix.full_tensor()), matrix.device_mesh, matrix.placements)
    return orthogonalise(matrix)


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
