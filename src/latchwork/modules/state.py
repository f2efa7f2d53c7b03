"""What a network remembers between two calls."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from latchwork.markup import table
from latchwork.tensor_files import read_tensors, write_tensors


def _describe(part: object) -> str:
    """A tensor by shape and type, and anything else, as pytrees put it here, by itself."""
    return f"{tuple(part.shape)} {part.dtype}" if isinstance(part, Tensor) else repr(part)


class State(NamedTuple):
    """The state of a layer, or of a cascade with one more dimension in front, n_layers.

    conv: (..., B, d_model), the last input of each convolution. x: (..., B, d_state), the latches; units of degree n
    lie one after the other. It is an ordinary tuple of two tensors, so that torch.compile, torch.export, DDP and
    pytrees take it as it is. Nothing here changes a state in place: each method returns a new one.

    >>> state = State(torch.zeros(2, 3, 16), torch.zeros(2, 3, 8))  # 2 layers, 3 sequences
    >>> state
    State(conv=(2, 3, 16) torch.float32, x=(2, 3, 8) torch.float32)
    >>> state.select([2, 0]).batch_size
    2
    """

    conv: Tensor
    x: Tensor

    def __repr__(self) -> str:
        """Shapes and types, not numbers."""
        return f"State(conv={_describe(self.conv)}, x={_describe(self.x)})"

    def _repr_html_(self) -> str:
        return table(("State", "shape and type"), [(name, _describe(part)) for name, part in self._asdict().items()])

    @property
    def batch_size(self) -> int:
        """The number of rows, B."""
        return self.x.shape[-2]

    def detach(self) -> State:
        """Cut from the graph: the place where truncated backpropagation through time stops."""
        return State(self.conv.detach(), self.x.detach())

    def to(self, *args: Any, **kwargs: Any) -> State:
        """As Tensor.to: another device or dtype."""
        return State(self.conv.to(*args, **kwargs), self.x.to(*args, **kwargs))

    def select(self, rows: Tensor | Sequence[int]) -> State:
        """The given rows of the batch, in the given order; a row may come twice. rows: integers, or bool (B,)."""
        index = torch.as_tensor(rows, device=self.x.device)
        if index.dtype == torch.bool:
            if index.shape != (self.batch_size,):
                raise ValueError(f"rows, as bool, must be (B,) = ({self.batch_size},); got {tuple(index.shape)}")
            index = index.nonzero().squeeze(-1)
        if index.dim() != 1 or (index.numel() and index.is_floating_point()):
            raise ValueError(f"rows must be one dimension of integers or bools; got {rows!r}")
        index = index.long()
        return State(self.conv.index_select(-2, index), self.x.index_select(-2, index))

    def reorder(self, rows: Tensor | Sequence[int]) -> State:
        """`select` with as many rows as there are, as beam search asks for."""
        if isinstance(rows, Tensor) and rows.dtype == torch.bool:
            raise ValueError("rows must be integers: a mask names no order")
        if len(rows) != self.batch_size:
            raise ValueError(f"rows must name {self.batch_size} rows, one for each of the batch; got {len(rows)}")
        return self.select(rows)

    def repeat(self, times: int) -> State:
        """Each row `times` times, side by side: B becomes B * times."""
        return State(self.conv.repeat_interleave(times, -2), self.x.repeat_interleave(times, -2))

    @staticmethod
    def join(states: Sequence[State]) -> State:
        """The rows of all states, one batch after the other."""
        return State(torch.cat([each.conv for each in states], -2), torch.cat([each.x for each in states], -2))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file with its SHA-256 in it, whole or not at all."""
        write_tensors(Path(path), {"conv": self.conv, "x": self.x})

    @staticmethod
    def load(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> State:
        """Read what `save` wrote. A file that has changed since is an error."""
        tensors, _ = read_tensors(Path(path), device)
        if set(tensors) != {"conv", "x"}:
            raise ValueError(f"{path} is not a saved state: it must hold conv and x, and holds {sorted(tensors)}")
        state = State(**tensors)
        if state.x.dim() < 2 or state.conv.shape[:-1] != state.x.shape[:-1]:
            shapes = f"{tuple(state.conv.shape)} and {tuple(state.x.shape)}"
            raise ValueError(f"{path} is not a saved state: conv and x must be (..., B, D); got {shapes}")
        if not (state.conv.is_floating_point() and state.x.is_floating_point()):
            raise ValueError(f"{path} is not a saved state: conv is {state.conv.dtype}, x is {state.x.dtype}")
        return state


# A tuple with names is a pytree already; a saved torch.export program finds the class by a name, and torch.load
# without pickle's powers (weights_only) takes no class that it has not been told of.
pytree._register_namedtuple(State, serialized_type_name="latchwork.modules.state.State")
torch.serialization.add_safe_globals([State])
