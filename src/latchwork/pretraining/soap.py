"""SOAP: Adam in the basis in which a matrix's gradients are least correlated.

Of the gradients G of a matrix the means of G G^T and of G^T G are kept. In the basis of their eigenvectors, left and
right, a step is Adam's; the basis follows every few steps, by one round of the power iteration. A long matrix is cut
into blocks of its own basis each: of 576 rows, three of 192.

Adam divides by the root of the mean squares, their power 0.5. With a higher power, towards 1, which is that of the
natural gradient, directions of small gradients step further and those of large ones less far (`weigh`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.pretraining.matrices import MatrixOptimizer, State, on_whole

BLOCK = 256  # rows and columns at most, the work of a basis growing with their third power
TURN = 5  # steps from one basis to the next
FLOOR = 0.1  # of the mean deviation of a block: directions of less are not weighed more


class Soap(MatrixOptimizer):
    """SOAP for the matrices between embedding and head, in float32; AdamW for all else.

    The mean of the gradients is that of the group's "momentum", that of their squares and products of its second beta.
    Where processes share a matrix, each keeps the state of the whole.
    """

    def first_state(self, matrix: Tensor) -> State:
        """Zeros: the basis is that of the first gradient."""
        (rows, down), (columns, across) = (blocks_of(size) for size in matrix.shape)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, device=matrix.device)

        many = down * across
        return {
            "step": zeros(),
            **{name: zeros(many, rows, columns) for name in ("exp_avg", "exp_avg_sq")},
            **{f"{name}_left": zeros(many, rows, rows) for name in ("product", "basis")},
            **{f"{name}_right": zeros(many, columns, columns) for name in ("product", "basis")},
        }

    def direction(self, gradient: Tensor, state: State, group: dict[str, Any]) -> Tensor:
        """Adam's step in the basis, weighed; nothing at the first step, which has none yet."""
        values = group["momentum"], group["betas"][1], group["eps"], group["power"]
        return on_whole(lambda whole: _direction(whole, state, *values), gradient)


def _direction(gradient: Tensor, state: State, beta: float, beta_squares: float, eps: float, power: float) -> Tensor:
    g = cut(gradient.float())
    steps = int(state["step"])
    if steps == 0:
        update = torch.zeros_like(g)
    else:
        left, right = state["basis_left"], state["basis_right"]
        state["exp_avg"].lerp_(g, 1 - beta)
        state["exp_avg_sq"].lerp_((left.mT @ g @ right).square(), 1 - beta_squares)
        mean = left.mT @ state["exp_avg"] @ right / (1 - beta**steps)
        deviation = (state["exp_avg_sq"] / (1 - beta_squares**steps)).sqrt()
        update = left @ weigh(mean / (deviation + eps), deviation, power) @ right.mT
    state["product_left"].lerp_(g @ g.mT, 1 - beta_squares)
    state["product_right"].lerp_(g.mT @ g, 1 - beta_squares)
    if steps == 0:
        for side in ("left", "right"):
            state[f"basis_{side}"].copy_(torch.linalg.eigh(state[f"product_{side}"]).eigenvectors.flip(2))
    elif steps % TURN == 0:
        _turn(state, "left", 1)
        _turn(state, "right", 2)
    state["step"] += 1
    return join(update, gradient.shape).to(gradient.dtype)


def weigh(steps: Tensor, deviation: Tensor, power: float) -> Tensor:
    """Steps of blocks, divided by the deviations, as if by the squares' power in place of 0.5; as long as they were.

    >>> steps, deviation = torch.ones(1, 1, 2), torch.tensor([[[1.0, 4.0]]])
    >>> weighed = weigh(steps, deviation, power=0.75)
    >>> print(f"{weighed[0, 0, 0] / weighed[0, 0, 1]:.2f}, {weighed.norm() / steps.norm():.2f}")
    2.00, 1.00
    """
    if power == 0.5:
        return steps
    tiny = torch.finfo(steps.dtype).tiny
    relative = deviation / deviation.mean((1, 2), keepdim=True).clamp(min=tiny)
    weighed = steps * relative.clamp(min=FLOOR) ** (1 - 2 * power)
    before, after = (torch.linalg.vector_norm(each, dim=(1, 2), keepdim=True) for each in (steps, weighed))
    return weighed.mul_(before / after.clamp(min=tiny))


def _turn(state: State, side: str, dim: int) -> None:
    """One round of the power iteration, the largest eigenvalues first; the squares go where their directions go."""
    basis, squares = state[f"basis_{side}"], state["exp_avg_sq"]
    image = state[f"product_{side}"] @ basis
    order = (basis * image).sum(1).argsort(1, descending=True)
    squares.copy_(squares.gather(dim, order.unsqueeze(3 - dim).expand_as(squares)))
    basis.copy_(torch.linalg.qr(image.gather(2, order.unsqueeze(1).expand_as(image))).Q)


def blocks_of(size: int) -> tuple[int, int]:
    """How long the blocks are, and how many: as few as there may be, as even as they can.

    >>> blocks_of(208), blocks_of(576), blocks_of(257)
    ((208, 1), (192, 3), (129, 2))
    """
    many = max(1, -(-size // BLOCK))
    return -(-size // many), many


def cut(matrix: Tensor) -> Tensor:
    """A matrix into its blocks, one after the other; the last of a row or column may end in zeros, which stay zeros."""
    (rows, down), (columns, across) = (blocks_of(size) for size in matrix.shape)
    padding = 0, columns * across - matrix.shape[1], 0, rows * down - matrix.shape[0]
    blocks = F.pad(matrix, padding).view(down, rows, across, columns).transpose(1, 2)
    return blocks.reshape(down * across, rows, columns)


def join(blocks: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of `cut`."""
    (rows, down), (columns, across) = (blocks_of(size) for size in shape)
    whole = blocks.view(down, across, rows, columns).transpose(1, 2).reshape(rows * down, columns * across)
    return whole[: shape[0], : shape[1]]
