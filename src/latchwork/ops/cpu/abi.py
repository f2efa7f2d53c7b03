"""What the C++ kernel is called with: csrc/abi.h, field by field. Sizes are compared when the library is loaded."""

from __future__ import annotations

import ctypes

INTERFACE = 13
NO_SUCH_DTYPE, NO_SUCH_CHOICE, NO_MEMORY = 1, 2, 3  # what an entry point returns that could not do its work

_Fields = tuple[tuple[str, type], ...]


def _integers(*names: str) -> _Fields:
    return tuple((name, ctypes.c_int64) for name in names)


def _pointers(*names: str) -> _Fields:
    return tuple((name, ctypes.c_void_p) for name in names)


class Rows(ctypes.Structure):
    """A tensor (B, T, ...) with contiguous inner dimensions; strides in elements."""

    _fields_ = (*_pointers("data"), *_integers("batch", "time"))


def _rows(*names: str) -> _Fields:
    return tuple((name, Rows) for name in names)


class Problem(ctypes.Structure):
    """The recurrence."""

    _fields_ = (
        *_integers("dtype", "batch", "time", "width", "degree", "threads", "chunk"),
        *_rows("r", "s", "x", "state", "x0", "reset"),
        *_rows("grad", "grad_r", "grad_s", "grad_state", "grad_x0", "whole_r", "whole_s"),
    )


class Moves(ctypes.Structure):
    """Units that move whole levels."""

    _fields_ = (
        *_integers("dtype", "batch", "time", "units", "degree", "sends", "threads"),
        *_rows("choice", "x", "state", "x0", "s", "reset"),
        *_rows("grad", "grad_weights", "grad_state", "grad_x0", "grad_s"),
    )


class Choice(ctypes.Structure):
    """Rows of logits, each a choice."""

    _fields_ = (
        *_integers("dtype", "tokens", "rows", "options", "threads"),
        ("temperature", ctypes.c_double),
        *_rows("logits", "own", "weights", "choice", "grad", "grad_logits", "grad_own"),
    )


class Norm(ctypes.Structure):
    """One of a layer's norms."""

    _fields_ = (
        *_integers("kind"),
        ("epsilon", ctypes.c_double),
        *_pointers("weight", "bias", "grad_weight", "grad_bias"),
    )


class Linear(ctypes.Structure):
    """One of a layer's linear maps."""

    _fields_ = _pointers("weight", "bias", "grad_weight", "grad_bias")


class Layer(ctypes.Structure):
    """A layer, or its part before the recurrence, or the recurrence and what follows."""

    _fields_ = (
        *_integers("batch", "time", "width", "hidden", "outputs", "state", "threads"),
        *_integers("gated_conv", "gated_ffn", "gated_output", "activation", "seed"),
        ("dropout", ctypes.c_double),
        *((name, Norm) for name in ("norm_conv", "norm_ffn", "norm_neuron")),
        *((name, Linear) for name in ("conv", "up", "down", "projection", "output")),
        *_pointers("u", "first", "reset", "last", "start", "x0", "z", "tape", "y", "x_last", "v_last"),
        *_pointers("grad_y", "grad_x_last", "grad_v_last", "grad_z", "grad_u", "grad_first", "grad_start", "grad_x0"),
    )


class Head(ctypes.Structure):
    """A language model's head and its loss."""

    _fields_ = (
        *_integers("rows", "width", "classes", "threads"),
        ("share", ctypes.c_double),
        *_pointers("x", "weight", "targets", "losses", "grad_x", "grad_weight"),
    )


class Best(ctypes.Structure):
    """The largest logit of each row."""

    _fields_ = (
        *_integers("rows", "width", "classes", "threads"),
        ("norm", Norm),
        *_pointers("x", "weight", "best"),
    )


class Matvec(ctypes.Structure):
    """A matrix times a few vectors."""

    _fields_ = (
        *_integers("vectors", "outputs", "inputs", "row", "quantised", "threads"),
        *_pointers("weight", "scale", "bias", "x", "y"),
    )


class Instruction(ctypes.Structure):
    """One operation of a monitor."""

    _fields_ = _integers("op", "a", "b", "size", "state", "counter")


class Monitor(ctypes.Structure):
    """Steps of a monitor of temporal formulas."""

    _fields_ = (
        *_integers("dtype"),
        *_pointers("program"),
        *_integers("length", "batch", "signals", "steps"),
        *_pointers("values", "state", "constants", "counters", "input", "roots"),
        *_integers("n_roots"),
        *_pointers("output"),
        *_integers("last"),
        *_pointers("rows", "known"),
    )


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    Rows,
    Problem,
    Moves,
    Choice,
    Norm,
    Linear,
    Layer,
    Head,
    Best,
    Matvec,
    Instruction,
    Monitor,
)


def differs(library: ctypes.CDLL) -> str | None:
    """In what the library is not the one that this file mirrors, or None."""
    if not hasattr(library, "latchwork_interface") or library.latchwork_interface() != INTERFACE:
        return "its interface"
    for each in STRUCTURES:
        if library.latchwork_size(each.__name__.encode()) != ctypes.sizeof(each):
            return f"the size of its structure {each.__name__}"
    return None
