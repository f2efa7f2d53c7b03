"""Formulas of infinite horizon, online: the robustness at the first step, of the trace so far, in constant memory.

What the formula is at the first step depends on the steps seen, which are numbers by now, and on what some of its
subformulas are a step ahead: the variables of temporal/core.py. As a function of these it is made of minima and maxima,
so it is known by its values at the corners, where each variable is true or false:

    F(v)  =  the maximum over corners S of min(F(S), the minimum of v over the variables true in S).

Corners that no future can have are left out, since for each level the variables above it are a corner that it can have.
A step replaces the variables by what they are in terms of those of the next step, again at each corner. The trace so
far is the corner in which nothing comes any more. If F is above 0 at all corners, nothing that comes can change that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.temporal.core import Core
from latchwork.temporal.formula import Formula


class Ahead:
    """The function F of `batch` traces, F (B, corners); None before the first step. leaves: what it takes each step."""

    def __init__(self, formula: Formula, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        self.core = Core(formula, lambda node: node.horizon != float("inf"), past=False)
        self.leaves = self.core.leaves
        self.corners = torch.tensor(self.core.corners(), device=device)  # (C, V), the end of the trace first
        self.batch, self.dtype, self.device = batch, dtype, device
        true, false = (torch.tensor(value, dtype=dtype, device=device) for value in (torch.inf, -torch.inf))
        self.ahead = torch.where(self.corners, true, false).T  # (V, C)
        self.function: Tensor | None = None

    def advance(self, leaves: Tensor) -> None:
        """One more step, whose leaves (L, B) are known."""
        self.function = self._after(self.function, leaves)

    def so_far(self, pending: Tensor) -> Tensor:
        """The robustness (B,) if the trace ends after the steps `pending` (n, L, B)."""
        function = self.function
        for leaves in pending:
            function = self._after(function, leaves)
        assert function is not None
        return function[:, 0].clone()

    def verdict(self) -> Tensor:
        """(B,): 1 if above 0 at all corners, -1 if below, else 0."""
        if self.function is None:
            return torch.zeros(self.batch, dtype=torch.int8, device=self.device)
        low, high = self.function.amin(1), self.function.amax(1)
        return (low > 0).to(torch.int8) - (high < 0).to(torch.int8)

    def state(self) -> dict[str, Tensor]:
        """F by name; nothing before the first step."""
        return {} if self.function is None else {"ahead": self.function.clone()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take F out of a state."""
        function = state.pop("ahead", None)
        if function is not None and function.shape != (self.batch, len(self.corners)):
            wanted = (self.batch, len(self.corners))
            raise ValueError(f"the state ahead must be {wanted}; got {tuple(function.shape)}")
        self.function = None if function is None else function.to(self.device, self.dtype)

    def _after(self, function: Tensor | None, leaves: Tensor) -> Tensor:
        values = self._values(leaves)
        if function is None:
            return values[self.core.root]
        best: Tensor | None = None
        for k, corner in enumerate(self.corners):
            term = function[:, k : k + 1].expand(self.batch, len(self.corners))
            for (read, _), true in zip(self.core.variables, corner.tolist(), strict=True):
                term = torch.minimum(term, values[read]) if true else term
            best = term if best is None else torch.maximum(best, term)
        assert best is not None
        return best

    def _values(self, leaves: Tensor) -> dict[int, Tensor]:
        """Of each node at this step, for each corner of the next: (B, C)."""
        shape = (self.batch, len(self.corners))
        values: dict[int, Tensor] = {}
        for k in self.core.order:
            node = self.core.nodes[k]
            if node.kind == "leaf":
                values[k] = leaves[node.a].unsqueeze(1).expand(shape)
            elif node.kind == "next":
                values[k] = self.ahead[self.core.variables.index((node.a, node.outside))].expand(shape)
            else:
                both = torch.minimum if node.kind == "and" else torch.maximum
                values[k] = both(values[node.a], values[node.b])
        return values
