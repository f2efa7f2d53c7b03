"""A language model as an ONNX graph: one step, or a chunk of steps, with the state as input and output."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from latchwork.models import onnx_graph
from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.state import State

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

INPUTS, OUTPUTS = ("tokens", "conv", "x"), ("logits", "next_conv", "next_x")


def export_step(
    model: MinMaxRNC_LM,
    path: str | os.PathLike[str],
    *,
    batch_size: int | None = None,
    symbol_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> None:
    """Write an ONNX graph of one step, for decoding: `export_chunk` with length 1."""
    export_chunk(model, path, length=1, batch_size=batch_size, symbol_names=symbol_names, output_names=output_names)


def export_chunk(
    model: MinMaxRNC_LM,
    path: str | os.PathLike[str],
    *,
    length: int,
    batch_size: int | None = None,
    symbol_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> None:
    """Write an ONNX graph of `length` steps, as the model computes them in eval mode.

    Inputs: tokens (B, length) int64, and the two tensors of a State, conv (n_layers, B, d_model) and
    x (n_layers, B, d_state); `model.initial_state(B)` is the first one. Outputs: logits
    (B, length, vocab_size), next_conv and next_x, to be given to the next call, of this graph or one of another length.
    batch_size: B; None leaves it open, at no cost in onnxruntime. symbol_names, output_names: of the first tokens, and
    of the first logits, as those of a `Machine`; they are kept in the file's metadata, as JSON under
    "latchwork.symbol_names" and "latchwork.output_names".

    The graph has no loop and no custom operator: the recurrence is written out as minima and maxima, exact as always.
    For degree one, chunks of sqrt(length) steps run side by side, about 7 sqrt(length) nodes a layer; for degree n
    there are 4 nodes a step. The file is written whole or not at all; weights of more than 1.5 GB go into a second
    file, `path` with ".data" appended, put in place before the first.
    """
    if not isinstance(model, MinMaxRNC_LM):
        raise TypeError(f"model must be a MinMaxRNC_LM; got {type(model).__name__}")
    onnx_graph.check_count("length", length)
    onnx_graph.check_count("batch_size", batch_size, optional=True)
    path = Path(path)
    onnx_graph.check_path(path)
    metadata = {
        f"latchwork.{name}": _names(name, names, model.vocab_size)
        for name, names in (("symbol_names", symbol_names), ("output_names", output_names))
        if names is not None
    }
    program = _program(model, length, batch_size)
    program.model.metadata_props.update(metadata)
    onnx_graph.write(program, path)


def _names(name: str, names: Sequence[str], most: int) -> str:
    """The names as JSON."""
    if not 0 < len(names) <= most or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{name} must be 1 to {most} names, one for each of the first tokens; got {names!r:.200}")
    return json.dumps(list(names))


class _Streaming(nn.Module):
    """The model with its state taken apart, since an ONNX graph knows tensors only."""

    def __init__(self, model: MinMaxRNC_LM) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, conv: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, and the two tensors of the state."""
        u = self.model.embedding(tokens)
        y, state = self.model.backbone(u, State(conv, x))  # not model(...), which may branch on the number of tokens
        positive = torch.where(state.x == 0, 0.0, state.x)  # +0, as minmax_step writes it: runtimes drop `x + 0.0`
        return self.model.head(y), state.conv, positive


def _program(model: MinMaxRNC_LM, length: int, batch_size: int | None) -> ONNXProgram:
    config = model.backbone.config
    units = {config.d_state // config.degree, *(number for number, _ in config.extra_units)}
    example = next(rows for rows in range(2, len(units) + 3) if rows not in units)  # torch would fix those, and 1
    rows = batch_size or example
    state = model.initial_state(rows).detach()
    tokens = torch.zeros(rows, length, dtype=torch.long, device=state.x.device)
    free = torch.export.Dim.DYNAMIC
    shapes = None if batch_size else {"tokens": {0: "batch"}, "conv": {1: free}, "x": {1: free}}
    return onnx_graph.trace(_Streaming(model), (tokens, *state), shapes, INPUTS, OUTPUTS)
