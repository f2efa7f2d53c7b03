"""Latch: a recurrent layer that is called as nn.LSTM and nn.GRU are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from latchwork.modules.clock import Clock, count_steps
from latchwork.modules.conv import BasicConv
from latchwork.modules.feedforward import GatedFeedForward
from latchwork.modules.latch_state import LatchState
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.linear import Linear
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.sequences import at_step, inside, reverse, reverse_reset
from latchwork.modules.state import State
from latchwork.ops.arguments import autocasts

if TYPE_CHECKING:
    from latchwork.modules.latch_stream import LatchStream

PERIODS = (4, 8, 16, 32, 64, 128)  # a period longer than the training sequences fails on longer ones


class LatchLayer(nn.Module):
    """One layer in one direction: a linear map of the input and of the clock, then a MinMaxLayer.

    input_size: None where the input is as wide as the layer already; then there is no map.
    """

    def __init__(
        self, input_size: int | None, hidden_size: int, state_size: int, *, bias: bool, clock_width: int, n_layers: int
    ) -> None:
        super().__init__()
        self.input = None if input_size is None else Linear(input_size, hidden_size, bias=bias)
        self.clock = Linear(clock_width, hidden_size, bias=False) if clock_width else None
        self.layer = MinMaxLayer(
            conv=BasicConv(hidden_size),
            ffn=GatedFeedForward(hidden_size, proj_factor=0.5, dropout=0.0, n_layers=n_layers),
            neuron=MinMaxNeuron(hidden_size, state_size, output_gate=False, s_r_init="spread", n_layers=n_layers),
        )

    def forward(
        self, u: Tensor, ticks: Tensor | None, state: State | None, reset: Tensor | None, last: Tensor | None
    ) -> tuple[Tensor, State]:
        """u (B, T, input_size), ticks (B or 1, T, clock_width). Returns y (B, T, hidden_size), and the state."""
        if self.input is not None:
            u = self.input(u)
        if self.clock is not None and ticks is not None:
            u = u + self.clock(ticks)
        y, after = self.layer(u, state, reset=reset, last=last)
        return y, after


class Latch(nn.Module):
    """A recurrent layer of latches, x_t = max(min(r_t, x_{t-1}), s_t), in the place of nn.LSTM or nn.GRU.

    input_size, hidden_size, num_layers, batch_first, bidirectional: as in nn.LSTM. bias: of the maps of the input; the
    latches always have theirs, where their levels are. dropout: between layers, in training, one mask for the whole
    sequence: a latch would remember the extremes of a mask that changes from step to step. state_size: latches a layer
    and direction; hidden_size by default. clock: add the sine and cosine of the step's number to the input, at these
    periods. The count is part of the state.

    >>> latch = Latch(3, 16, num_layers=2, batch_first=True)
    >>> output, state = latch(torch.randn(4, 10, 3))
    >>> output.shape, state.h.shape
    (torch.Size([4, 10, 16]), torch.Size([1, 4, 16]))
    >>> more, state = latch(torch.randn(4, 5, 3), state)  # goes on from step 10
    >>> state.step.tolist()
    [[15, 15, 15, 15]]
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        state_size: int | None = None,
        clock: bool = True,
        periods: Sequence[int] = PERIODS,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        state_size = hidden_size if state_size is None else state_size
        sizes = {"input_size": input_size, "hidden_size": hidden_size}
        for name, value in {**sizes, "num_layers": num_layers, "state_size": state_size}.items():
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1; got {value!r}")
        options = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional, "clock": clock}
        for name, value in options.items():
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False; got {value!r}")
        if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout < 1:
            raise ValueError(f"dropout must be a number, at least 0 and less than 1; got {dropout!r}")
        if dropout and num_layers == 1:
            warnings.warn(f"dropout={dropout} has no effect with num_layers=1: it acts between layers", stacklevel=2)
        self.input_size, self.hidden_size, self.num_layers, self.state_size = (
            input_size,
            hidden_size,
            num_layers,
            state_size,
        )
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.clock = Clock(periods) if clock else None
        directions = 2 if bidirectional else 1
        between = 2 * hidden_size if bidirectional else None
        self.layers = nn.ModuleList(
            LatchLayer(
                between if number else input_size,
                hidden_size,
                state_size,
                bias=bias,
                clock_width=self.clock.width if self.clock is not None and number == 0 else 0,
                n_layers=num_layers,
            )
            for number in range(num_layers)
            for _ in range(directions)
        )
        self.norm = nn.LayerNorm(directions * hidden_size)
        self.to(device=device, dtype=dtype)

    def forward(
        self,
        input: Tensor | PackedSequence,
        state: LatchState | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, LatchState]:
        """The output at each step, D * hidden_size wide, and the state to go on from.

        input: (T, B, input_size), (B, T, input_size) with batch_first, (T, input_size), or a PackedSequence; the output
        is alike. state: what an earlier call returned, or None for the start. lengths: (B,), 0 to T, how long each
        sequence is; what follows is not read, the output there is 0, and the state is that after each sequence's own
        last step. reset: bool, (T, B), (B, T) or (T,), as the input; a sequence begins there, its clock at 0, and
        sees nothing of what came before in its row.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, state, lengths, reset)
        self._check(input, reset)
        if input.dim() == 2:
            if lengths is not None:
                raise ValueError("lengths must be None for an unbatched sequence (T, input_size)")
            whole = None if state is None else state.map(lambda each: each.unsqueeze(1))
            self.check_state(whole, 1, batched=False)
            y, after = self.run(input.unsqueeze(0), whole, None, None if reset is None else reset.unsqueeze(0))
            return y.squeeze(0), after.map(lambda each: each.squeeze(1))
        if not self.batch_first:
            input, reset = input.transpose(0, 1), None if reset is None else reset.transpose(0, 1)
        self.check_state(state, input.shape[0])
        y, after = self.run(input, state, self._read_lengths(lengths, input), reset)
        return y if self.batch_first else y.transpose(0, 1).contiguous(), after  # so that `output.view` works

    def initial_state(self, batch_size: int) -> LatchState:
        """The state before the first step, as `state=None` means it."""
        weight = self.norm.weight
        x = torch.stack([layer.layer.neuron.start().expand(batch_size, -1) for layer in self.layers])  # type: ignore[union-attr, operator]
        h = weight.new_zeros(2 if self.bidirectional else 1, batch_size, self.hidden_size)
        step = torch.zeros(h.shape[:2], dtype=torch.long, device=weight.device)
        return LatchState(weight.new_zeros(len(self.layers), batch_size, self.hidden_size), x, step, h)

    def stream(self, state: LatchState | None = None, *, batch_size: int = 1) -> LatchStream:
        """A function of one step (B, input_size) that keeps the state itself, at the least cost: see LatchStream."""
        from latchwork.modules.latch_stream import LatchStream

        return LatchStream(self, state, batch_size=batch_size)

    def flatten_parameters(self) -> None:
        """Do nothing: for programs that call it on nn.LSTM."""

    def extra_repr(self) -> str:
        """As nn.LSTM prints itself."""
        named = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        changed = [f"{name}={value}" for name, usual in named.items() if (value := getattr(self, name)) != usual]
        if self.state_size != self.hidden_size:
            changed.append(f"state_size={self.state_size}")
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])

    def run(
        self, u: Tensor, state: LatchState | None, lengths: Tensor | None, reset: Tensor | None
    ) -> tuple[Tensor, LatchState]:
        """`forward` for u (B, T, input_size), lengths (B,) and reset (B, T), without its checks."""
        B, T = u.shape[:2]
        if not T:
            empty = u.new_zeros(B, 0, self.norm.normalized_shape[0])
            return empty, self.initial_state(B) if state is None else state
        last, real = None, None
        if lengths is not None:
            last, real = (lengths - 1).clamp(min=0), inside(lengths, T).unsqueeze(-1)
            u = u.masked_fill(~real, 0)  # else a NaN there would reach the gradients of the weights
        directions = 2 if self.bidirectional else 1
        resets = [reset, None if reset is None or directions == 1 else reverse_reset(reset, lengths)][:directions]
        counts = [
            count_steps(None if state is None else state.step[d], B, T, resets[d], u.device) for d in range(directions)
        ]
        ticks = [None if self.clock is None else self.clock(each).to(u.dtype) for each in counts]
        conv, x = [], []
        for number in range(self.num_layers):
            if number and self.dropout and self.training:
                u = u * F.dropout(u.new_ones(B, 1, u.shape[2]), self.dropout)
            outputs = []
            for d in range(directions):
                which = number * directions + d
                before = None if state is None else State(state.conv[which], state.x[which])
                y, after = self.layers[which](reverse(u, lengths) if d else u, ticks[d], before, resets[d], last)
                outputs.append(reverse(y, lengths) if d else y)
                conv.append(after.conv)
                x.append(after.x)
            u = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        y = self.norm(u)
        if real is not None:
            y = y.masked_fill(~real, 0)
        h = at_step(y[..., : self.hidden_size], last)
        ends = [h, y[:, 0, self.hidden_size :]][:directions]  # backwards, the first step is the last
        step = [at_step(each.expand(B, T).unsqueeze(-1), last).squeeze(-1) + 1 for each in counts]
        after_all = LatchState(torch.stack(conv), torch.stack(x), torch.stack(step), torch.stack(ends))
        return y, after_all if lengths is None else self._keep_empty(lengths, state, after_all)

    def _keep_empty(self, lengths: Tensor, state: LatchState | None, after: LatchState) -> LatchState:
        """The state after the call, and for a sequence of no steps the state before it."""
        before = self.initial_state(lengths.shape[0]) if state is None else state
        empty = lengths == 0

        def choose(old: Tensor, new: Tensor) -> Tensor:
            return torch.where(empty.view(-1, *[1] * (new.dim() - 2)), old.to(new.dtype), new)

        return LatchState(*map(choose, before, after))

    def _packed(
        self,
        input: PackedSequence,
        state: LatchState | None,
        lengths: Tensor | Sequence[int] | None,
        reset: Tensor | None,
    ) -> tuple[PackedSequence, LatchState]:
        if lengths is not None or reset is not None:
            raise ValueError("lengths and reset must be None for a PackedSequence, which says its lengths itself")
        rows, sizes = pad_packed_sequence(input, batch_first=True)
        self._check(rows if self.batch_first else rows.transpose(0, 1), None)
        self.check_state(state, rows.shape[0])
        y, after = self.run(rows, state, sizes.to(rows.device), None)
        order = input.sorted_indices  # row k of the output's data belongs to row k of the input's
        if order is not None:
            y, sizes = y.index_select(0, order), sizes[order.to(sizes.device)]
        data = pack_padded_sequence(y, sizes, batch_first=True).data
        return PackedSequence(data, input.batch_sizes, order, input.unsorted_indices), after

    def _check(self, input: Tensor, reset: Tensor | None) -> None:
        """Raise an error that names the argument that is wrong, what it must be and what it was."""
        if not isinstance(input, Tensor):
            raise TypeError(f"input must be a tensor or a PackedSequence; got {type(input).__name__}")
        layout = "(B, T" if self.batch_first else "(T, B"
        if input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            raise ValueError(
                f"input must be {layout}, input_size = {self.input_size}), or (T, input_size); got {tuple(input.shape)}"
            )
        if not input.is_floating_point():
            raise TypeError(f"input must be floating-point numbers; got {input.dtype}")
        if input.dtype != (dtype := self.norm.weight.dtype) and not autocasts(input):
            raise TypeError(f"input must be {dtype}, as the weights are; got {input.dtype}")
        if reset is None:
            return
        if not isinstance(reset, Tensor):
            raise TypeError(f"reset must be a tensor; got {type(reset).__name__}")
        if reset.dtype != torch.bool or reset.shape != input.shape[:-1]:
            expected = f"{layout}) = " if input.dim() == 3 else "(T,) = "
            raise ValueError(
                f"reset must be bool {expected}{tuple(input.shape[:-1])}; got {reset.dtype} {tuple(reset.shape)}"
            )

    def check_state(self, state: LatchState | None, batch_size: int, *, batched: bool = True) -> None:
        """Raise an error that names the part that is wrong. batched: whether the caller's own state has a B."""
        if state is None or torch.compiler.is_compiling():
            return
        if not isinstance(state, LatchState):
            raise TypeError(f"state must be a LatchState, as an earlier call returned it; got {type(state).__name__}")
        directions = 2 if self.bidirectional else 1
        expected: dict[str, tuple[int, ...]] = {"conv": (len(self.layers), batch_size, self.hidden_size)}
        expected |= {"x": (len(self.layers), batch_size, self.state_size), "step": (directions, batch_size)}
        for name, shape in expected.items():
            if (got := tuple(getattr(state, name).shape)) != shape:
                if not batched:
                    shape, got = shape[:1] + shape[2:], got[:1] + got[2:]
                raise ValueError(f"state.{name} must be {shape} for this input; got {got}")
        if state.step.is_floating_point():
            raise TypeError(f"state.step must be integers; got {state.step.dtype}")

    def _read_lengths(self, lengths: Tensor | Sequence[int] | None, input: Tensor) -> Tensor | None:
        if lengths is None:
            return None
        B, T = input.shape[:2]
        none = isinstance(lengths, (list, tuple)) and not lengths  # torch takes an empty list for floats
        found = torch.as_tensor(lengths, device=input.device, dtype=torch.long if none else None)
        if found.dim() != 1 or found.shape[0] != B or found.is_floating_point() or found.dtype == torch.bool:
            raise ValueError(f"lengths must be integers (B,) = ({B},); got {found.dtype} {tuple(found.shape)}")
        if not torch.compiler.is_compiling() and B and not (int(found.min()) >= 0 and int(found.max()) <= T):
            raise ValueError(f"lengths must be from 0 to T = {T}; got {found.tolist()!r:.80}")
        return found.long()
