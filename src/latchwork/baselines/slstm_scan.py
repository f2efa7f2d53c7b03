"""The recurrence of the sLSTM: in plain torch, and as an operation of the C++ kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch


class SLSTMCellState(NamedTuple):
    """Output y, cell c, normaliser n, and stabiliser m, the logarithm by which c and n are scaled; (H, B, d) each."""

    y: Tensor
    c: Tensor
    n: Tensor
    m: Tensor


def slstm_scan(u: Tensor, recurrent: Tensor, state: SLSTMCellState) -> tuple[Tensor, SLSTMCellState]:
    """Run an sLSTM with exponential input gates over u and return y of every step, (T, H, B, d), and the last state.

    u: (T, H, B, 4 d), what drives the gates i, f, z, o, with their bias. recurrent: (H, d, 4 d). H is the number of
    heads. The output does not depend on m, so that no gradient goes through it.
    """
    y, c, n, m = state
    outputs = []
    for drive in u.unbind():
        i, f, z, o = torch.baddbmm(drive, y, recurrent).chunk(4, -1)
        log_f = F.logsigmoid(f)
        with torch.no_grad():
            m_next = torch.where(n == 0, i, torch.maximum(i, log_f + m))
        write, keep = (i - m_next).exp(), (log_f + (m - m_next)).exp()
        c = torch.addcmul(keep * c, write, z.tanh())
        n = torch.addcmul(write, keep, n)
        y, m = o.sigmoid() * c / n, m_next
        outputs.append(y)
    return torch.stack(outputs), SLSTMCellState(y, c, n, m)


def slstm_heads(
    first: Tensor, second: Tensor, maps: Tensor, bias: Tensor, recurrent: Tensor, state: SLSTMCellState
) -> tuple[Tensor, SLSTMCellState]:
    """`slstm_scan` with the linear maps that drive its gates, by the C++ kernel where it can; y is (B, T, H d).

    first, second: (B, T, H d). maps: (H, d, 4 d), from first to i and f of each head, from second to z and o.
    bias: (H, 4, d). recurrent: (H, d, 4 d).
    """
    given = (first, second, maps, bias, recurrent, *state)
    if first.numel() and kernel.takes(*given):
        y, c, n, m, _ = torch.ops.latchwork.slstm(*given, torch.is_grad_enabled())
        return y, SLSTMCellState(y[:, -1].view(y.shape[0], len(c), -1).transpose(0, 1), c, n, m)
    parts = [
        torch.einsum("bthd,hdg->bthg", each.reshape(*each.shape[:2], len(maps), -1), half)
        for each, half in zip((first, second), maps.chunk(2, -1), strict=True)
    ]
    u = torch.cat(parts, -1) + bias.flatten(1)  # (B, T, H, 4 d)
    y, state = slstm_scan(u.permute(1, 2, 0, 3), recurrent, state)
    return y.permute(2, 0, 1, 3).flatten(2), state


_NAMES = ("first", "second", "maps", "bias", "recurrent", "y0", "c0", "n0", "m0")
_Tensors = tuple[Tensor, ...]


def _given(tensors: tuple[Tensor, ...]) -> dict[str, Any]:
    (B, T, _), (H, _, d) = tensors[0].shape, tensors[5].shape
    values = [*kernel.contiguous(tensors[:2]), *(each.contiguous() for each in tensors[2:])]
    return {"batch": B, "time": T, "heads": H, "width": d, **dict(zip(_NAMES, values, strict=True))}


def _run(*inputs: Any) -> _Tensors:
    """Every y, the last c, n, m, and what the gradient needs if it is to be kept."""
    y, c, n, m, tape = (kernel.empty(*each.shape, like=inputs[0]) for each in _run_fake(*inputs))
    kernel.run("slstm", kernel.Slstm, **_given(inputs[:9]), y=y, c=c, n=n, m=m, tape=tape if inputs[9] else None)
    return y, c, n, m, tape


def _run_fake(*inputs: Any) -> _Tensors:
    first, state, keep = inputs[0], inputs[5], inputs[9]
    B, T, width = first.shape
    tape = first.new_empty(B, T, 6 * width) if keep else first.new_empty(0)
    return first.new_empty(B, T, width), *(state.new_empty(state.shape) for _ in range(3)), tape


def _backward(
    grad_y: Tensor, grad_c: Tensor | None, grad_n: Tensor | None, y: Tensor, tape: Tensor, *given: Tensor
) -> _Tensors:
    """The gradients of all tensors but m, which has none."""
    found = [
        each.new_zeros(each.shape) if name in ("maps", "bias", "recurrent") else kernel.empty(*each.shape, like=each)
        for name, each in zip(_NAMES[:8], given, strict=False)
    ]
    values: dict[str, Any] = {f"grad_{name}": each for name, each in zip(_NAMES[:8], found, strict=True)}
    ends = {"grad_c": grad_c, "grad_n": grad_n}
    values |= {name: None if each is None else each.contiguous() for name, each in ends.items()}
    (values["grad_y"],) = kernel.contiguous([grad_y])
    kernel.run("slstm_back", kernel.Slstm, **_given(given), y=y, tape=tape, **values)
    return tuple(found)


def _backward_fake(grad_y: Tensor, grad_c: Any, grad_n: Any, y: Tensor, tape: Tensor, *given: Tensor) -> _Tensors:
    return tuple(each.new_empty(each.shape) for each in given[:8])


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(output[0], output[4], *inputs[:9])
    ctx.mark_non_differentiable(output[3], output[4])
    ctx.set_materialize_grads(False)


def _gradient(
    ctx: Any, grad_y: Tensor | None, grad_c: Tensor | None, grad_n: Tensor | None, *_: object
) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y, grad_c, grad_n)
    grad_y = torch.zeros_like(ctx.saved_tensors[0]) if grad_y is None else grad_y
    return *torch.ops.latchwork.slstm_backward(grad_y, grad_c, grad_n, *ctx.saved_tensors), None, None


_ARGUMENTS = ", ".join(f"Tensor {name}" for name in _NAMES)
dispatch.register(
    f"slstm({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", _run, _run_fake, _save, _gradient
)
dispatch.register(
    f"slstm_backward(Tensor grad_y, Tensor? grad_c, Tensor? grad_n, Tensor y, Tensor tape, {_ARGUMENTS}) -> "
    f"({', '.join(['Tensor'] * 8)})",
    _backward,
    _backward_fake,
)
