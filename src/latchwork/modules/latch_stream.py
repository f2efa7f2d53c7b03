"""One step after the other, at the least cost: what a Latch computes, without its modules around it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.modules.cells import ScalarCell
from latchwork.modules.conv import BasicConv
from latchwork.modules.fast_layer import is_as_made
from latchwork.modules.feedforward import GatedFeedForward
from latchwork.modules.latch import Latch
from latchwork.modules.latch_state import LatchState
from latchwork.modules.linear import has_hooks


class LatchStream:
    """Steps (B, input_size) in, outputs (B, hidden_size) out, without gradients: for inference, as data arrives.

    For a step of one row most of nn.Module's work is looking things up. Here it is done once: weights are copied as
    they stand when the stream is made, and the result is that of the Latch in eval mode, to rounding. state: of a Latch
    of one direction, to go on from; each row must be at the same step. `state` is the one to go on from at any time,
    with this stream or with the Latch.

    >>> latch = Latch(3, 8, 2, batch_first=True)
    >>> stream = latch.stream()
    >>> u = torch.randn(1, 5, 3)
    >>> outputs = [stream(u[:, t]) for t in range(5)]
    >>> torch.testing.assert_close(torch.stack(outputs, 1), latch(u)[0].detach())
    """

    def __init__(self, latch: Latch, state: LatchState | None = None, *, batch_size: int = 1) -> None:
        if not isinstance(latch, Latch):
            raise TypeError(f"latch must be a Latch; got {type(latch).__name__}")
        if latch.bidirectional:
            raise ValueError("latch must have one direction: the other begins at the end of the sequence")
        if has_hooks(*latch.modules()) or not all(_is_usual(each.layer) for each in latch.layers):
            raise ValueError("latch must be as it was made, without hooks: a stream does not call its modules")
        state = latch.initial_state(batch_size) if state is None else state
        latch.check_state(state, state.step.shape[-1])
        if not state.step.numel() or bool((state.step != state.step[0, 0]).any()):
            raise ValueError(f"state must be that of a batch whose rows are at one step; got steps {state.step!r:.80}")
        with torch.no_grad():
            first: Any = latch.layers[0]
            self._input = first.input.weight.clone(), None if first.input.bias is None else first.input.bias.clone()
            self._ticks = _tick_table(latch)
            self._periods = [] if latch.clock is None else latch.clock.periods.tolist()
            self._starts = [] if latch.clock is None else latch.clock.starts.tolist()
            self._layers = [_weights(each.layer) for each in latch.layers]
            self._norm = latch.norm.normalized_shape, latch.norm.weight.clone(), latch.norm.bias.clone()
        self._input_size, self._epsilon = latch.input_size, latch.norm.eps
        self._step, self._h = int(state.step[0, 0]), state.h
        self._conv, self._x = list(state.conv.detach()), list(state.x.detach())

    @property
    def state(self) -> LatchState:
        """After the last step."""
        step = torch.full(self._h.shape[:2], self._step, device=self._h.device)
        return LatchState(torch.stack(self._conv), torch.stack(self._x), step, self._h)

    @torch.no_grad()
    def __call__(self, u: Tensor) -> Tensor:
        """The output at one step more."""
        if u.shape != (self._h.shape[1], self._input_size):
            raise ValueError(
                f"u must be (B, input_size) = {(self._h.shape[1], self._input_size)}; got {tuple(u.shape)}"
            )
        u = F.linear(u, *self._input)
        if self._ticks is not None:
            rows = [first + self._step % period for first, period in zip(self._starts, self._periods, strict=True)]
            u = u + self._ticks[rows].sum(0)
        shape, weight, bias = self._norm
        for number, layer in enumerate(self._layers):
            u, self._conv[number], self._x[number] = _step(
                u, self._conv[number], self._x[number], shape, self._epsilon, *layer
            )
        y = torch.layer_norm(u, shape, weight, bias, self._epsilon)
        self._step, self._h = self._step + 1, y.unsqueeze(0)
        return y


def _step(
    u: Tensor,
    conv: Tensor,
    x: Tensor,
    shape: tuple[int, ...],
    epsilon: float,
    norms: list[tuple[Tensor, Tensor]],
    mix: tuple[Tensor, Tensor],
    up: tuple[Tensor, Tensor],
    down: tuple[Tensor, Tensor],
    projection: tuple[Tensor, Tensor],
    output: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """MinMaxLayer for one step, u (B, d); returns y and the state."""
    normed = torch.layer_norm(u, shape, *norms[0], epsilon)
    mixed = F.linear(torch.cat((conv, normed), 1), *mix).add_(u)
    left, right = F.linear(torch.layer_norm(mixed, shape, *norms[1], epsilon), *up).chunk(2, 1)
    mixed += F.linear(left.relu_().mul_(right), *down)
    r, s = F.linear(torch.layer_norm(mixed, shape, *norms[2], epsilon), *projection).chunk(2, 1)
    x = torch.maximum(torch.minimum(r, x), s)
    return F.linear(x, *output).add_(u), normed, x


def _is_usual(layer: Any) -> bool:
    """Whether every part of a MinMaxLayer is as LatchLayer makes it, so that `_step` computes it."""
    return (
        is_as_made(layer)
        and type(layer.conv) is BasicConv
        and type(layer.ffn) is GatedFeedForward
        and layer.ffn.act_fn == "relu"
        and type(layer.norm_conv) is nn.LayerNorm
        and not layer.neuron.output_gate
        and [type(each) for each in layer.neuron.cells] == [ScalarCell]
        and layer.neuron.cells[0].levels is None
    )


def _weights(layer: Any) -> tuple[Any, ...]:
    """The weights of a MinMaxLayer as `_step` takes them."""
    ffn, neuron = layer.ffn, layer.neuron
    norms = [layer.norm_conv, layer.norm_ffn, layer.norm_neuron]
    linears = [layer.conv, ffn.up, ffn.down, neuron.projection, neuron.output]
    pairs = [(each.weight.clone(), each.bias.clone()) for each in [*norms, *linears]]
    return pairs[:3], *pairs[3:]


def _tick_table(latch: Latch) -> Tensor | None:
    """What each row of the clock's table adds to the first layer's input: (rows, hidden_size)."""
    mapped: Any = latch.layers[0].clock
    if latch.clock is None or mapped is None:
        return None
    weights = mapped.weight.detach().unflatten(1, (-1, 2)).unbind(1)
    tables = latch.clock.table.split_with_sizes(latch.clock.periods.tolist())
    return torch.cat([table @ weight.T for table, weight in zip(tables, weights, strict=True)])
