"""A block of state scalars that form units of one degree: what drives them, and their states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from latchwork.modules.choice import MOST, choose_permutation
from latchwork.ops import blurred_scan, minmax_scan, minmax_step
from latchwork.ops.choice import choose_rows
from latchwork.ops.selection import as_minmax, selection_scan
from latchwork.ops.transformation import as_minmax as moves_as_minmax
from latchwork.ops.transformation import transformation_scan

RESET_FORMS = ("free", "selection", "permutation", "transformation")


def round_to_levels(values: Tensor, levels: int) -> Tensor:
    """values at the nearest of `levels` evenly spaced points from -1 to 1; the gradient goes straight through.

    >>> round_to_levels(torch.tensor([-3.0, -0.4, 0.1, 0.7]), 3)
    tensor([-1.,  0.,  0.,  1.])
    """
    exact = values.detach().to(torch.promote_types(values.dtype, torch.float32))
    number = ((exact.clamp(-1, 1) + 1) * ((levels - 1) / 2)).round()
    rounded = ((2 * number - (levels - 1)) / (levels - 1)).to(values.dtype)
    return rounded + (values - values.detach()).nan_to_num(nan=0.0)  # what is added is 0 and carries the gradient


@dataclass(frozen=True)
class Units:
    """`size` state scalars in units of `degree`, and how the input gives r and s.

    "free": the entries of r and s are what drives them. For degree > 1 there are also forms whose steps move whole
    levels, so that no training blurs them, and whose gradient is a surrogate (ops/selection.py). "selection": of n + 1
    logits for each row i the largest says what x[i] becomes: one of the n levels of the unit, or x0[i]. "permutation":
    the permutation of the largest sum of n x n logits moves the levels. "transformation": of n logits for each level
    the largest says where it goes; where several meet the largest stays, where none comes there is 0. Its levels are
    from 0 to 1, and one unit can be any map of its n places into themselves: permutation, reset, and all between.
    blur: of degree one, that of the gradient (ops/blur.py), or 0 for the exact one.
    """

    size: int
    degree: int = 1
    form: str = "free"
    levels: int | None = None
    blur: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        if self.form not in RESET_FORMS:
            raise ValueError(f"reset_form must be one of {', '.join(RESET_FORMS)}; got {self.form!r}")
        if self.form == "permutation" and self.degree > MOST:
            raise ValueError(f"reset_form 'permutation' is for a degree of at most {MOST}; got {self.degree}")

    @property
    def widths(self) -> list[int]:
        """How many numbers give r, or the logits, and how many s, or the logits of taking x0."""
        return [self.size * self.degree, self.size if self.form in ("free", "selection") else 0]

    def signals(self, z: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
        """r and s out of z (..., sum(widths)): (..., D), or (..., U, N, N) and (..., U, N). x0: as the states begin.

        Of whole levels, r is the largest level of the unit at what is chosen, all else the smallest, or 0.
        """
        if self.form == "transformation":
            return moves_as_minmax(self.choice(z), x0.amax(-1), z.dtype)
        if self.form != "free":
            return as_minmax(self.choice(z), x0, x0.amin(-1), x0.amax(-1), z.dtype)
        r, s = z.split_with_sizes(self.widths, dim=-1)
        if self.levels is not None:
            r, s = round_to_levels(r, self.levels), round_to_levels(s, self.levels)
        if self.degree > 1:
            r, s = self._in_units(r, 2), self._in_units(s, 1)
        return r, s

    def begin(self, x0: Tensor) -> Tensor:
        """x0 (size,) as the recurrence sees it: on the grid if there is one, and not below 0 if that is none."""
        x0 = x0 if self.levels is None else round_to_levels(x0, self.levels)
        return x0.clamp(min=0) if self.form == "transformation" else x0

    def choose(self, z: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Weights (..., U, N, K) and choice (..., U, N): see modules/choice.py and ops/choice.py."""
        logits, own = self._logits(z)
        if self.form == "permutation":
            return choose_permutation(logits, temperature)
        return choose_rows(logits, own, temperature=temperature)

    def choice(self, z: Tensor) -> Tensor:
        """The choice alone, (..., U, N)."""
        logits, own = self._logits(z)
        if self.form == "permutation":
            return choose_permutation(logits)[1]
        return (logits if own is None else torch.cat([logits, own.unsqueeze(-1)], -1)).argmax(-1)

    def _logits(self, z: Tensor) -> tuple[Tensor, Tensor | None]:
        """(..., U, N, N), and for each row that of taking x0 if there is one."""
        logits, own = z.split_with_sizes(self.widths, dim=-1)
        return self._in_units(logits, 2), self._in_units(own, 1) if self.form == "selection" else None

    def _in_units(self, a: Tensor, dimensions: int) -> Tensor:
        """a (..., U * N^dimensions) with one dimension for the units and `dimensions` of size N."""
        return a.view(*a.shape[:-1], self.size // self.degree, *[self.degree] * dimensions)

    def states(
        self, z: Tensor, x0: Tensor, x: Tensor | None, reset: Tensor | None, backend: str, temperature: float = 1.0
    ) -> Tensor:
        """Every state (B, T, size) from z (B, T, ...), x0 (size,) or (U, N), and x (B, size), the state before.

        temperature: of the surrogate gradient's weights; no state depends on it.
        """
        x0 = x0.to(z.dtype)
        state = None if x is None else x.to(z.dtype).view(x.shape[0], *x0.shape)
        if self.form != "free" and torch.is_grad_enabled():
            weights, choice = self.choose(z, temperature)
            if self.form == "transformation":
                state = None if state is None else state.clamp(min=0)  # as the step itself does with what is below
                return transformation_scan(weights, choice, x0, state=state, reset=reset).flatten(2)
            s = x0 if self.form == "selection" else None
            return selection_scan(weights, choice, x0, s=s, state=state, reset=reset).flatten(2)
        r, s = self.signals(z, x0)
        if self.blur and torch.is_grad_enabled():
            return blurred_scan(r, s, x0, blur=self.blur, state=state, reset=reset, backend=backend)
        if z.shape[1] == 1:
            before = x0.expand(z.shape[0], *x0.shape) if state is None else state
            if reset is not None:
                before = torch.where(reset.view(-1, *[1] * x0.dim()), x0, before)
            return minmax_step(r[:, 0], s[:, 0], before).view(z.shape[0], 1, self.size)
        return minmax_scan(r, s, x0, state=state, reset=reset, backend=backend).flatten(2)
