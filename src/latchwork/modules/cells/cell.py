"""What a kind of state must offer to be part of a neuron."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def round_to_levels(values: Tensor, levels: int) -> Tensor:
    """values at the nearest of `levels` evenly spaced points from -1 to 1; the gradient goes straight through.

    >>> round_to_levels(torch.tensor([-3.0, -0.4, 0.1, 0.7]), 3)
    tensor([-1.,  0.,  0.,  1.])
    """
    exact = values.detach().to(torch.promote_types(values.dtype, torch.float32))
    number = ((exact.clamp(-1, 1) + 1) * ((levels - 1) / 2)).round()
    rounded = ((2 * number - (levels - 1)) / (levels - 1)).to(values.dtype)
    return rounded + (values - values.detach()).nan_to_num(nan=0.0)  # what is added is 0 and carries the gradient


class Cell(nn.Module):
    """`size` state scalars of one kind, driven by `width` numbers a step. levels: round x0 to so many, or None.

    To add a kind, write a subclass with `init_` and `forward`, and `start` and `as_minmax` where they differ, and give
    it to MinMaxNeuron. The neuron holds the start x0 of all its cells and hands each cell its part.
    """

    def __init__(self, size: int, width: int, levels: int | None = None) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size must be at least 1; got {size}")
        self.size, self.width, self.levels = size, width, levels

    def init_(self, weight: Tensor, bias: Tensor, x0: Tensor, s_r_init: str) -> None:
        """Set the first weight (width, d_model) and bias (width,) of the drives, and x0 (size,), in place.

        They come with weight small_init and all else 0. s_r_init: as in MinMaxNeuron.
        """
        raise NotImplementedError

    def start(self, x0: Tensor) -> Tensor:
        """x0 (size,) as the recurrence sees it: on the grid if there is one."""
        return x0 if self.levels is None else round_to_levels(x0, self.levels)

    def forward(self, z: Tensor, x0: Tensor, state: Tensor | None = None, reset: Tensor | None = None) -> Tensor:
        """Every state (B, T, size), from the drives z (B, T, width).

        x0: (size,), as `start` gives it. state: (B, size), the state before the first step, or None for x0. reset:
        (B, T) bool; where true, the state before that step is x0.
        """
        raise NotImplementedError

    def as_minmax(self, z: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
        """r and s of the MinMax recurrence that moves the states in the same way.

        z: (..., width). Returns (..., size) each, or (..., U, N, N) and (..., U, N).
        """
        raise NotImplementedError(f"{type(self).__name__} has no MinMax form: it defines no as_minmax")

    def extra_repr(self) -> str:
        """The size, and degree and levels where there are such."""
        options = {name: getattr(self, name, None) for name in ("degree", "levels")}
        return ", ".join([f"{self.size}", *(f"{name}={each}" for name, each in options.items() if each is not None)])
