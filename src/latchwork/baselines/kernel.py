"""How the baselines call the C++ kernel: the structures of csrc/baselines/abi.h, and whether it takes some tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from latchwork.ops import layer
from latchwork.ops.cpu import kernel as cpu
from latchwork.ops.cpu.abi import Rows

_Fields = tuple[tuple[str, type], ...]


def _integers(*names: str) -> _Fields:
    return tuple((name, ctypes.c_int64) for name in names)


def _numbers(*names: str) -> _Fields:
    return tuple((name, ctypes.c_double) for name in names)


def _pointers(*names: str) -> _Fields:
    return tuple((name, ctypes.c_void_p) for name in names)


def _rows(*names: str) -> _Fields:
    return tuple((name, Rows) for name in names)


class MambaMixer(ctypes.Structure):
    """Mamba's layer between its two projections."""

    _weights = ("conv", "conv_bias", "x_proj", "dt_proj", "dt_bias", "decay", "skip", "x0")
    _fields_ = (
        *_integers("batch", "time", "width", "states", "rank", "taps", "threads"),
        *_rows("mapped", "y"),
        *_pointers("before", *_weights, "x", "kept"),
        *_rows("grad_y", "grad_mapped"),
        *_pointers("grad_before", *(f"grad_{name}" for name in _weights), "grad_x"),
    )


class LinearMap(ctypes.Structure):
    """A linear map of rows, or of blocks of them, and what stands around it."""

    _fields_ = (
        *_integers("rows", "inputs", "outputs", "blocks", "threads", "heads", "centred", "activation"),
        *_integers("seed", "drops_before"),
        *_numbers("epsilon", "dropout"),
        *_rows("x", "mixed", "gate"),
        *_pointers("norm", "skip", "weight", "bias"),
        *_rows("residual"),
        *_pointers("y"),
        *_rows("grad_y", "grad_x", "grad_mixed", "grad_gate", "added"),
        *_pointers("grad_norm", "grad_skip", "grad_weight", "grad_bias"),
    )


class FeedForward(ctypes.Structure):
    """Two linear maps and what stands around them."""

    _fields_ = (("up", LinearMap), ("down", LinearMap), *_integers("threads"))


class Gru(ctypes.Structure):
    """A GRU's recurrence."""

    _fields_ = (
        *_integers("batch", "time", "width", "threads"),
        *_rows("drive", "y"),
        *_pointers("weight", "bias", "h0"),
        *_rows("tape", "grad_y", "grad_drive", "grad_hidden"),
        *_pointers("grad_h0"),
    )


class Attention(ctypes.Structure):
    """Causal attention."""

    _fields_ = (
        *_integers("batch", "time", "keys", "heads", "width", "window", "threads"),
        *_numbers("scale"),
        *_rows("q", "k", "v", "y"),
        *_pointers("logs"),
        *_rows("grad_y", "grad_q", "grad_k", "grad_v"),
    )


class Slstm(ctypes.Structure):
    """An sLSTM and what drives its gates."""

    _weights = ("conv", "conv_bias", "maps", "bias", "recurrent")
    _fields_ = (
        *_integers("batch", "time", "heads", "width", "taps", "threads"),
        *_rows("mapped", "y"),
        *_pointers("before", *_weights, "y0", "c0", "n0", "m0", "c", "n", "m"),
        *_rows("tape", "grad_y", "grad_mapped"),
        *_pointers("grad_before", *(f"grad_{name}" for name in _weights), "grad_y0", "grad_c0", "grad_n0"),
        *_pointers("grad_c", "grad_n"),
    )


class Mlstm(ctypes.Structure):
    """An mLSTM."""

    _fields_ = (
        *_integers("batch", "time", "heads", "keys", "values", "threads"),
        *_numbers("scale", "epsilon"),
        *_rows("q", "k", "v", "i", "f", "y"),
        *_pointers("c0", "n0", "m0", "c", "n", "m", "tape"),
        *_rows("grad_y", "grad_q", "grad_k", "grad_v", "grad_i", "grad_f"),
        *_pointers("grad_c", "grad_n", "grad_c0", "grad_n0"),
    )


class MlstmMixer(ctypes.Structure):
    """An mLSTM and what stands around it in its layer."""

    _weights = ("conv", "conv_bias", "of_q", "of_k", "of_v", "gates", "gate_bias", "norm", "skip")
    _fields_ = (
        *_integers("batch", "time", "heads", "width", "taps", "threads"),
        *_numbers("scale", "epsilon", "norm_epsilon"),
        *_rows("mapped", "y"),
        *_pointers("before", *_weights, "c0", "n0", "m0", "c", "n", "m", "tape"),
        *_rows("grad_y", "grad_mapped"),
        *_pointers("grad_before", *(f"grad_{name}" for name in _weights), "grad_c", "grad_n", "grad_c0", "grad_n0"),
    )


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    MambaMixer,
    LinearMap,
    FeedForward,
    Gru,
    Attention,
    Slstm,
    Mlstm,
    MlstmMixer,
)


def _compare_sizes() -> None:
    for each in STRUCTURES:
        if cpu.library().latchwork_size(each.__name__.encode()) != ctypes.sizeof(each):
            raise RuntimeError(
                f"the C++ kernel is of another version of latchwork: the size of its structure {each.__name__} "
                "differs; reinstall the package"
            )


if cpu.MISSING is None:
    _compare_sizes()


def takes(first: Tensor, *others: Tensor | None) -> bool:
    """Whether the kernel runs on these: float32 on the CPU, and no transform or other backend asked for."""
    return layer.unfit(first, *others) is None


def empty(*shape: int, like: Tensor) -> Tensor:
    """A tensor for the kernel to write; see ops/cpu/kernel.py."""
    return cpu.empty(torch.Size(shape), like)


def contiguous(tensors: Sequence[Tensor | None]) -> list[Any]:
    """Each as it is if the kernel can read it, its last dimension contiguous; else a copy."""
    return [None if each is None else cpu.inner_contiguous(each.resolve_neg(), 1) for each in tensors]


def by_name(names: Sequence[str], tensors: Sequence[Tensor | None]) -> dict[str, Any]:
    """The tensors of a mixer as the kernel reads them. Of the first the last dimension alone must be contiguous."""
    rest = [None if each is None else each.contiguous() for each in tensors[1:]]
    return dict(zip(names, [*contiguous(tensors[:1]), *rest], strict=True))


def gradients(
    names: Sequence[str], shapes: Sequence[Tensor], summed: slice
) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    """Tensors for the gradients of a mixer, and the fields for them; None for an empty one.

    summed: those that all rows add to, and that are zeros therefore.
    """
    found = [empty(*each.shape, like=each) for each in shapes]
    for each in found[summed]:
        each.zero_()
    fields = zip(names, found, strict=False)
    return found, {f"grad_{name}": each if each.numel() else None for name, each in fields}


def filled(structure: type[ctypes.Structure], **values: Any) -> Any:
    """A structure: a tensor goes where it has an address, or a Rows; None is no address."""
    kinds = dict(structure._fields_)  # type: ignore[arg-type]
    problem: Any = structure(threads=torch.get_num_threads())
    for field, value in values.items():
        if kinds[field] is Rows:
            value = Rows() if value is None else Rows(value.data_ptr(), value.stride(0), value.stride(1))
        elif isinstance(value, Tensor):
            assert value.is_contiguous(), field
            value = value.data_ptr()
        setattr(problem, field, value)
    return problem


def run(name: str, structure: type[ctypes.Structure], **values: Any) -> None:
    """Call `latchwork_NAME` with a `filled` structure."""
    if cpu.call(f"latchwork_{name}", filled(structure, **values)):
        raise RuntimeError(f"latchwork_{name} does not take these sizes")
