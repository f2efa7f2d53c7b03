"""What optimisers have in common that step the matrices between embedding and head in a way of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

State = dict[str, Tensor]  # of one matrix: what a checkpoint holds of it


class MatrixOptimizer(torch.optim.AdamW):
    """AdamW but for groups with a "momentum", whose matrices step along `direction`: one schedule, one checkpoint."""

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

    def _step_matrix(self, each: Tensor, group: dict[str, Any]) -> None:
        if not self.state[each]:
            self.state[each] = self.first_state(each)
        assert each.grad is not None
        update = self.direction(each.grad, self.state[each], group)
        rate = group["lr"] * group["rate"]
        each.mul_(1 - rate * group["weight_decay"])
        each.add_(update, alpha=-rate)

    @abstractmethod
    def first_state(self, matrix: Tensor) -> State:
        """The state before the first step."""

    @abstractmethod
    def direction(self, gradient: Tensor, state: State, group: dict[str, Any]) -> Tensor:
        """What the rate is multiplied with, entries being about as large as AdamW's; `state` is brought up to date."""


def on_whole(function: Callable[[Tensor], Tensor], matrix: Tensor) -> Tensor:
    """function(matrix); of a matrix that processes share, each computes the whole and keeps its part."""
    if isinstance(matrix, DTensor):
        return distribute_tensor(function(matrix.full_tensor()), matrix.device_mesh, matrix.placements)
    return function(matrix)
