"""Norm, convolution, feed-forward, neuron, residual: the only place where they meet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latchwork.modules import fast_layer
from latchwork.modules.conv import BasicConv, GatedConv
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.norm import norm
from latchwork.modules.sequences import at_step
from latchwork.modules.state import State


class MinMaxLayer(nn.Module):
    """y = u + Neuron(norm(u + c + f)), with c = Conv(norm(u)) and f = FFN(norm(u + c)).

    Only the neuron's output enters the residual stream. The parts are made by the caller: see models/backbone.py.
    `forward` below is the definition. Where modules/fast_layer.py has a plan for a call, that runs instead.

    >>> layer = MinMaxLayer(conv=BasicConv(16), ffn=GatedFeedForward(16), neuron=MinMaxNeuron(16, 8))
    >>> y, state = layer(torch.zeros(3, 10, 16))
    >>> y.shape, state
    (torch.Size([3, 10, 16]), State(conv=(3, 16) torch.float32, x=(3, 8) torch.float32))
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

    def forward(
        self,
        u: Tensor,
        state: State | None = None,
        *,
        reset: Tensor | None = None,
        drives: Tensor | None = None,
        last: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """u (B, T, d_model); returns y like u, and the state after the last step.

        reset: (B, T) bool; where true a new sequence begins, which sees nothing before it. drives: the result of
        `drive` for u, if the caller has it already (models/token_pairs.py). last: (B,), the step after which
        each row's state is returned, for rows that end early; None is the last of all.
        """
        self.check(u, state, reset)
        fast = fast_layer.plan(self, u, state, reset, drives, last)
        if fast is not None:
            return fast()
        before, x = (None, None) if state is None else state
        inside, before = self.before_neuron(u, before, reset, last)
        y, x = self.neuron(inside, x, reset=reset, last=last)
        return u + y, State(before, x)

    def before_neuron(
        self, u: Tensor, before: Tensor | None = None, reset: Tensor | None = None, last: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The neuron's input, like u, and the convolution's last input. before: (B, d_model), its input before u."""
        normed = self.norm_conv(u)
        mixed, before = self.conv(normed, before, reset=reset)
        if last is not None:
            before = at_step(normed, last)
        mixed = u + mixed
        return self.norm_neuron(mixed + self.ffn(self.norm_ffn(mixed))), before

    def drive(self, u: Tensor, before: Tensor | None = None, reset: Tensor | None = None) -> Tensor:
        """The drives of the recurrence: `neuron.project` of the neuron's input."""
        return self.neuron.project(self.before_neuron(u, before, reset)[0])

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
