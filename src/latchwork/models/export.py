"""A language model as an ONNX graph: one step, or a chunk of steps, with the state as input and output."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.state import State

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

INPUTS, OUTPUTS = ("tokens", "conv", "x"), ("logits", "next_conv", "next_x")
SIDE_BY_SIDE = 12  # steps; for fewer, chunks side by side are more nodes than a loop


def export_step(model: MinMaxRNC_LM, path: str | os.PathLike[str], *, batch_size: int | None = None) -> None:
    """Write an ONNX graph of one step, for decoding: `export_chunk` with length 1."""
    export_chunk(model, path, length=1, batch_size=batch_size)


def export_chunk(
    model: MinMaxRNC_LM, path: str | os.PathLike[str], *, length: int, batch_size: int | None = None
) -> None:
    """Write an ONNX graph of `length` steps, as the model computes them in eval mode.

    Inputs: tokens (B, length) int64, and the two tensors of a State, conv (n_layers, B, d_model) and
    x (n_layers, B, d_state); `model.initial_state(B)` is the first one. Outputs: logits
    (B, length, vocab_size), next_conv and next_x, to be given to the next call, of this graph or one of another length.
    batch_size: B; None leaves it open, at no cost in onnxruntime.

    The graph has no loop and no custom operator: the recurrence is written out as minima and maxima, exact as always.
    For degree one, chunks of sqrt(length) steps run side by side, about 7 sqrt(length) nodes a layer; for degree n
    there are 4 nodes a step. The file is written whole or not at all; weights of more than 1.5 GB go into a second
    file, `path` with ".data" appended, put in place before the first.
    """
    if not isinstance(model, MinMaxRNC_LM):
        raise TypeError(f"model must be a MinMaxRNC_LM; got {type(model).__name__}")
    if not isinstance(length, int) or length < 1:
        raise ValueError(f"length must be an integer of at least 1; got {length!r}")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"batch_size must be an integer of at least 1, or None; got {batch_size!r}")
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path must be in a folder that exists; got {path}")
    _write(_program(model, length, batch_size), path)


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
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError("ONNX export needs onnx and onnxscript: pip install 'latchwork[onnx]'") from error
    config = model.backbone.config
    units = {config.d_state // config.degree, *(number for number, _ in config.extra_units)}
    example = next(rows for rows in range(2, len(units) + 3) if rows not in units)  # torch would fix those, and 1
    rows = batch_size or example
    state = model.initial_state(rows).detach()
    tokens = torch.zeros(rows, length, dtype=torch.long, device=state.x.device)
    free = torch.export.Dim.DYNAMIC
    shapes = None if batch_size else {"tokens": {0: "batch"}, "conv": {1: free}, "x": {1: free}}
    with torch.no_grad(), _evaluating(model):
        program = torch.onnx.export(
            _Streaming(model).eval(),
            (tokens, *state),
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=INPUTS,
            output_names=OUTPUTS,
            custom_translation_table={torch.ops.latchwork.minmax_scan.default: _scan},
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces, with paths of this machine
    return program


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode within the block; afterwards each module has its own mode again."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _write(program: ONNXProgram, path: Path) -> None:
    """Save beside path, check, and rename: the file that the others belong to comes last."""
    import onnx

    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        whole = Path(folder) / path.name
        program.save(whole)
        onnx.checker.check_model(whole)
        for file in sorted(Path(folder).iterdir(), key=lambda each: each == whole):
            file.replace(path.parent / file.name)


def _scan(r: Any, s: Any, state: Any, reset: Any = None, x0: Any = None, backend: str = "") -> Any:
    """latchwork::minmax_scan in operators of ONNX; shapes as in `reference_scan`, T known, B perhaps not."""
    from onnxscript import opset18 as op

    assert reset is None, "the exported network takes no reset"
    T, *unit = s.shape[1:]
    x = op.Unsqueeze(state, _integers(op, 1))  # (B, 1, D), or (B, 1, U, N)
    if len(unit) == 2 or T < SIDE_BY_SIDE:
        step = _step if len(unit) == 1 else _unit_step
        return _loop(op, step, _split(op, r, T, 1), _split(op, s, T, 1), x, 1)
    width = isqrt(T)
    done = T // width * width
    if done == T:
        return _side_by_side(op, r, s, x, width, T, *unit)[0]
    head, x = _side_by_side(op, _slice(op, r, 0, done), _slice(op, s, 0, done), x, width, done, *unit)
    tail_r, tail_s = (_split(op, _slice(op, each, done, T), T - done, 1) for each in (r, s))
    return op.Concat(head, _loop(op, _step, tail_r, tail_s, x, 1), axis=1)


def _side_by_side(op: Any, r: Any, s: Any, x: Any, width: int, T: int, D: int) -> tuple[Any, Any]:
    """Degree one, x (B, 1, D): all states and the last, with T / width chunks at once, as in ops/torch/scan.py."""
    count = T // width
    r_t, s_t = (_split(op, op.Reshape(each, _integers(op, 0, count, width, D)), width, 2) for each in (r, s))
    whole_r, whole_s = r_t[0], s_t[0]  # (B, count, 1, D): each chunk as one step
    for t in range(1, width):
        whole_r, whole_s = op.Min(r_t[t], whole_r), _step(op, r_t[t], s_t[t], whole_s)
    x = op.Unsqueeze(x, _integers(op, 1))
    after = _loop(op, _step, _split(op, whole_r, count, 1), _split(op, whole_s, count, 1), x, 1)
    states = _loop(op, _step, r_t, s_t, op.Concat(x, _slice(op, after, 0, count - 1), axis=1), 2)
    return op.Reshape(states, _integers(op, 0, T, D)), op.Squeeze(_slice(op, after, count - 1, count), _integers(op, 2))


def _loop(op: Any, step: Callable[..., Any], r: Sequence[Any], s: Sequence[Any], x: Any, axis: int) -> Any:
    """Every state from x on, side by side along axis."""
    states = []
    for r_t, s_t in zip(r, s, strict=True):
        x = step(op, r_t, s_t, x)
        states.append(x)
    return op.Concat(*states, axis=axis) if len(states) > 1 else x


def _step(op: Any, r: Any, s: Any, x: Any) -> Any:
    """Degree one."""
    return op.Max(op.Min(r, x), s)


def _unit_step(op: Any, r: Any, s: Any, x: Any) -> Any:
    """Degree n: r (..., N, N), s and x (..., N)."""
    candidates = op.Min(r, op.Unsqueeze(x, _integers(op, -2)))
    return op.Max(op.ReduceMax(candidates, _integers(op, -1), keepdims=0), s)


def _slice(op: Any, a: Any, start: int, end: int) -> Any:
    """a[:, start:end]."""
    return op.Slice(a, _integers(op, start), _integers(op, end), _integers(op, 1))


def _split(op: Any, a: Any, parts: int, axis: int) -> Sequence[Any]:
    """The parts of size 1 of a along axis."""
    pieces: Sequence[Any] = op.Split(a, num_outputs=parts, axis=axis) if parts > 1 else [a]
    return pieces


def _integers(op: Any, *values: int) -> Any:
    return op.Constant(value_ints=list(values))
