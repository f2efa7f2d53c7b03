"""What a Latch remembers between two calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class LatchState(NamedTuple):
    """The state of a Latch. L: num_layers. D: directions, 1 or 2. For an unbatched sequence there is no B.

    conv: (L D, B, hidden_size), the last input of each convolution. x: (L D, B, state_size), the latches. Layer l in
    direction d is number l D + d, as in torch's h_n. step: (D, B), how many steps the clock has counted. h: (D, B,
    hidden_size), the output at each sequence's last step, and backwards at its first: what h_n[-D:] is in nn.LSTM. It
    is for reading: a call does not look at the h that it is given.

    >>> state = LatchState(*(torch.zeros(2, 3, 4) for _ in range(2)), torch.zeros(1, 3).long(), torch.zeros(1, 3, 4))
    >>> state.select([2]).x.shape
    torch.Size([2, 1, 4])
    """

    conv: Tensor
    x: Tensor
    step: Tensor
    h: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> LatchState:
        """The state with the function applied to each tensor."""
        return LatchState(*map(function, self))

    def detach(self) -> LatchState:
        """Cut from the graph: the place where truncated backpropagation through time stops."""
        return self.map(Tensor.detach)

    def to(self, *args: Any, **kwargs: Any) -> LatchState:
        """As Tensor.to: another device or dtype; the step stays an integer."""
        step = self.step.to(self.x.to(*args, **kwargs).device)
        return LatchState(self.conv.to(*args, **kwargs), self.x.to(*args, **kwargs), step, self.h.to(*args, **kwargs))

    def select(self, rows: Tensor | Sequence[int]) -> LatchState:
        """The given rows of the batch, integers, in the given order; a row may come twice."""
        index = torch.as_tensor(rows, dtype=torch.long, device=self.x.device)
        return self.map(lambda each: each.index_select(1, index))


pytree._register_namedtuple(LatchState, serialized_type_name="latchwork.modules.latch_state.LatchState")
torch.serialization.add_safe_globals([LatchState])
