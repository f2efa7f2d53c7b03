"""A Latch as an ONNX graph: one step, or a whole sequence, with the state as input and output."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from latchwork.models import onnx_graph
from latchwork.modules.latch import Latch
from latchwork.modules.latch_state import LatchState

INPUTS = ("input", "conv", "x", "step")
OUTPUTS = ("output", "next_conv", "next_x", "next_step", "h")


def export_latch(
    latch: Latch,
    path: str | os.PathLike[str],
    *,
    length: int = 1,
    batch_size: int | None = None,
    lengths: bool = False,
) -> None:
    """Write an ONNX graph of `length` steps: 1 for streaming, more for chunks or whole sequences.

    Inputs: input (B, length, input_size), whatever batch_first says, and of the state (LatchState) conv, x and step;
    `latch.initial_state(B)` is the one to begin with. lengths: add an input "lengths" (B,), 0 to length, for sequences
    that end early; a bidirectional latch needs it to read a sequence that is shorter than the graph. Outputs: output
    (B, length, D * hidden_size), next_conv, next_x and next_step, to be given to the next call, and h.
    batch_size: B; None leaves it open.

    The graph has no loop and no custom operator. The file is written whole or not at all (see `export_chunk`).
    """
    if not isinstance(latch, Latch):
        raise TypeError(f"latch must be a Latch; got {type(latch).__name__}")
    onnx_graph.check_count("length", length)
    onnx_graph.check_count("batch_size", batch_size, optional=True)
    path = Path(path)
    onnx_graph.check_path(path)
    used = {1, len(latch.layers), latch.num_layers, length, latch.input_size}
    rows = batch_size or next(number for number in range(2, 10) if number not in used)  # torch would fix those
    state = latch.initial_state(rows).detach()
    u = state.x.new_zeros(rows, length, latch.input_size)
    arguments = [u, state.conv, state.x, state.step]
    names = list(INPUTS)
    if lengths:
        arguments.append(torch.full((rows,), length, device=u.device))
        names.append("lengths")
    free = torch.export.Dim.DYNAMIC
    places = dict(zip(names, (0, 1, 1, 1, 0), strict=False))
    shapes = None if batch_size else {name: {place: free} for name, place in places.items()}
    onnx_graph.write(onnx_graph.trace(_Streaming(latch), tuple(arguments), shapes, names, OUTPUTS), path)


class _Streaming(nn.Module):
    """The latch with its state taken apart, since an ONNX graph knows tensors only."""

    def __init__(self, latch: Latch) -> None:
        super().__init__()
        self.latch = latch

    def forward(
        self, input: Tensor, conv: Tensor, x: Tensor, step: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The output, and the tensors of the state."""
        h = conv[: step.shape[0]]  # of the right shape: what it holds is kept only for sequences of no steps
        y, state = self.latch.run(input, LatchState(conv, x, step, torch.zeros_like(h)), lengths, None)
        return y, state.conv, torch.where(state.x == 0, 0.0, state.x), state.step, state.h
