"""A module as an ONNX graph: traced, with the recurrence written in ONNX's own operators, checked and written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from latchwork.extras import need

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

SIDE_BY_SIDE = 12  # steps; for fewer, chunks side by side are more nodes than a loop


def check_path(path: Path) -> None:
    """Raise an error if the folder that the file is to be in does not exist."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path must be in a folder that exists; got {path}")


def check_count(name: str, value: object, optional: bool = False) -> None:
    """Raise an error if the argument of this name is not a count."""
    if not (optional and value is None) and (type(value) is not int or value < 1):
        raise ValueError(f"{name} must be an integer of at least 1{', or None' if optional else ''}; got {value!r}")


def trace(
    module: nn.Module, arguments: tuple[Tensor, ...], shapes: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> ONNXProgram:
    """The module's forward as an ONNX program, in eval mode. shapes: the open sizes, as torch.export has them."""
    need("onnx", "onnx", "onnxscript")
    with torch.no_grad(), _evaluating(module):
        program = torch.onnx.export(
            module,
            arguments,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=inputs,
            output_names=outputs,
            custom_translation_table={torch.ops.latchwork.minmax_scan.default: _scan},
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces, with paths of this machine
    return program


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """model.eval() for the time being, each module then as it was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def write(program: ONNXProgram, path: Path) -> None:
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
    """Degree one, x (B, 1, D): all states and the last, with T / width chunks at once, as in ops/parallel.py."""
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
