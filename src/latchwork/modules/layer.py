"""Norm, convolution, feed-forward, neuron, residual: the only place where they meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.modules.conv import BasicConv, GatedConv, last_input, shift
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.fused import fused_drive, fused_respond
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.state import State


class Distinct(NamedTuple):
    """The few distinct inputs of a layer whose input takes few values, as the first layer above an embedding does.

    u, previous: (P, d_model), an input and the one before it; known: (P,) bool, false where there is none before.
    places: (B, T), which of them stands where. Where the layer is given a state, the last B are the first steps of the
    rows, and the convolution's state stands in for their `previous`. table: `drive` of more rows that stand before
    these, if it is known already.
    """

    u: Tensor
    previous: Tensor
    known: Tensor
    places: Tensor
    table: Tensor | None = None


def norm(kind: str, d_model: int) -> nn.Module:
    """ "layernorm", "rmsnorm" or "none"."""
    kinds: dict[str, Callable[[int], nn.Module]] = {
        "layernorm": nn.LayerNorm,
        "rmsnorm": nn.RMSNorm,
        "none": nn.Identity,
    }
    if kind not in kinds:
        raise ValueError(f"norm_type must be one of {', '.join(kinds)}; got {kind!r}")
    return kinds[kind](d_model)


class MinMaxLayer(nn.Module):
    """y = u + Neuron(norm(u + c + f)), with c = Conv(norm(u)) and f = FFN(norm(u + c)).

    Only the neuron's output enters the residual stream. The parts are made by the caller: see models/backbone.py.
    """

    def __init__(
        self,
        *,
        conv: BasicConv | GatedConv,
        ffn: FeedForward | GatedFeedForward,
        neuron: MinMaxNeuron,
        norm_type: str = "layernorm",
    ) -> None:
        super().__init__()
        self.norm_conv, self.norm_ffn, self.norm_neuron = (norm(norm_type, neuron.d_model) for _ in range(3))
        self.conv, self.ffn, self.neuron = conv, ffn, neuron

    def drive(self, u: Tensor, v: Tensor, previous: Tensor) -> Tensor:
        """The neuron's `project`, from u (..., d_model), v = norm_conv(u), and v one step before."""
        mixed = u + self.conv.mix(previous, v)
        return self.neuron.project(self.norm_neuron(mixed + self.ffn(self.norm_ffn(mixed))))

    def forward(
        self, u: Tensor, state: State | None = None, *, reset: Tensor | None = None, distinct: Distinct | None = None
    ) -> tuple[Tensor, State]:
        """u (B, T, d_model); returns y like u, and the state to go on from.

        reset: (B, T) bool; a sequence begins there, and nothing before it is seen. distinct: u's distinct values, if
        the caller knows them; the result is the same, and what comes before the recurrence is computed once for each.
        """
        self.check(u, state, reset)
        before = None if state is None else state.conv
        if distinct is None:
            z = fused_drive(self, u, before, reset)
            if z is None:
                v = self.norm_conv(u)
                z = self.drive(u, v, shift(v, before, reset))
            else:
                v = self.norm_conv(u[:, -1:])
            conv = last_input(v, before)
        else:
            z = F.embedding(distinct.places, self.drive_distinct(distinct, before))
            conv = last_input(self.norm_conv(u[:, -1:]), before)
        before = None if state is None else state.x
        fused = fused_respond(self, u, z, before, reset)
        if fused is not None:
            return fused[0], State(conv, fused[1])
        y, x = self.neuron.recur(z, before, reset=reset)
        return u + y, State(conv, x)

    def drive_distinct(self, distinct: Distinct, before: Tensor | None) -> Tensor:
        """`drive` of the distinct inputs, one row for each."""
        previous = self.norm_conv(distinct.previous)
        if before is not None:
            previous = torch.cat((previous[: -len(before)], before.to(previous.dtype)))
        previous = previous.masked_fill(~distinct.known.unsqueeze(-1), 0)
        z = self.drive(distinct.u, self.norm_conv(distinct.u), previous)
        return z if distinct.table is None else torch.cat((distinct.table, z))

    def check(self, u: Tensor, state: State | None, reset: Tensor | None) -> None:
        """Raise an error that names the argument that is wrong, what it must be and what it was."""
        if torch.compiler.is_compiling():
            return  # the sizes are open, and may not be compared
        d_model, d_state = self.neuron.d_model, self.neuron.d_state
        if u.dim() != 3 or u.shape[2] != d_model:
            raise ValueError(f"u must be (B, T, d_model = {d_model}); got {tuple(u.shape)}")
        B, T = u.shape[:2]
        if state is not None and (state.conv.shape != (B, d_model) or state.x.shape != (B, d_state)):
            raise ValueError(
                f"state must be conv {(B, d_model)} and x {(B, d_state)}; "
                f"got {tuple(state.conv.shape)} and {tuple(state.x.shape)}"
            )
        if reset is not None and (reset.dtype != torch.bool or reset.shape != (B, T)):
            raise ValueError(f"reset must be bool (B, T) = {(B, T)}; got {reset.dtype} {tuple(reset.shape)}")

    def draws_random_numbers(self) -> bool:
        """Whether equal inputs may give different outputs: a dropout is at work before the recurrence."""
        return self.training and (self.ffn.dropout.p > 0 or self.neuron.dropout.p > 0)
