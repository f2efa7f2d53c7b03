"""Units of degree n: the paper's matrices."""

from __future__ import annotations

from torch import Tensor

from latchwork.modules.cells.cell import Cell, round_to_levels
from latchwork.modules.init import kaiming_init_, levels_init_, permutation_init_
from latchwork.ops import minmax_scan


def in_units(a: Tensor, degree: int, dimensions: int) -> Tensor:
    """a (..., U N^dimensions) with one dimension for the units U and `dimensions` of size N."""
    return a.view(*a.shape[:-1], a.shape[-1] // degree**dimensions, *[degree] * dimensions)


def check_units(size: int, degree: int) -> None:
    """Raise an error unless `size` scalars are whole units of `degree`, which is at least 2."""
    if degree < 2 or size % degree:
        raise ValueError(f"size must be a multiple of degree, at least 2; got size {size}, degree {degree}")


class MatrixCell(Cell):
    """x_t[i] = max(s_t[i], max_k min(r_t[i, k], x_{t-1}[k])) in each unit of `degree` scalars; z is [r, s].

    R starts between two permutations that the input chooses from, and x0 at distinct levels. levels: as in ScalarCell.
    """

    def __init__(self, size: int, degree: int, levels: int | None = None) -> None:
        super().__init__(size, size * (degree + 1), levels)
        check_units(size, degree)
        self.degree = degree

    def init_(self, weight: Tensor, bias: Tensor, x0: Tensor, s_r_init: str) -> None:
        """s_r_init is for s only; its bias is lower by 1 than that of scalars."""
        n, rows = self.degree, self.size * self.degree
        if s_r_init in ("kaiming", "asymmetric"):
            kaiming_init_(weight[rows:])
        if s_r_init == "asymmetric":
            bias[rows:].fill_(1.0)
        permutation_init_(weight[:rows].view(-1, n, n, weight.shape[1]), bias[:rows].view(-1, n, n))
        bias[rows:].sub_(1.0)
        levels_init_(x0.view(-1, n))

    def forward(self, z: Tensor, x0: Tensor, state: Tensor | None = None, reset: Tensor | None = None) -> Tensor:
        """See Cell."""
        start, state = (None if a is None else in_units(a, self.degree, 1) for a in (x0, state))
        assert start is not None
        return minmax_scan(*self.as_minmax(z, x0), start, state=state, reset=reset).flatten(2)

    def as_minmax(self, z: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
        """r and s as they drive the states."""
        z, rows = z if self.levels is None else round_to_levels(z, self.levels), self.size * self.degree
        return in_units(z[..., :rows], self.degree, 2), in_units(z[..., rows:], self.degree, 1)
