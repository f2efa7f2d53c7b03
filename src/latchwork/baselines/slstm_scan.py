"""The sLSTM and what drives its gates: in plain torch, and as one operation of the C++ kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.baselines.causal_conv import MOST_TAPS, causal_conv
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


class HeadWeights(NamedTuple):
    """Of H heads of d channels, W = H d."""

    conv: Tensor  # (W, 1, taps)
    conv_bias: Tensor | None  # (W,)
    maps: Tensor  # (H, d, 4 d), to the gates of each head
    bias: Tensor  # (H, 4, d)
    recurrent: Tensor  # (H, d, 4 d)


def slstm_heads(
    mapped: Tensor, before: Tensor, weights: HeadWeights, state: SLSTMCellState
) -> tuple[Tensor, SLSTMCellState]:
    """`slstm_scan` with what drives its gates, by the C++ kernel where it can; y is (B, T, W).

    mapped: (B, T, W), drives z and o. What drives i and f is silu of the causal convolution of mapped, which goes on
    from before: (B, taps - 1, W).
    """
    given = (mapped, before, *weights, *state)
    if 1 < weights.conv.shape[2] <= MOST_TAPS and mapped.numel() and kernel.takes(*given):
        y, c, n, m, _ = torch.ops.latchwork.slstm(*given, torch.is_grad_enabled())
        return y, SLSTMCellState(y[:, -1].view(y.shape[0], len(c), -1).transpose(0, 1), c, n, m)
    convolved = causal_conv(mapped, before, weights.conv, weights.conv_bias)
    parts = [
        torch.einsum("bthd,hdg->bthg", each.reshape(*each.shape[:2], len(half), -1), half)
        for each, half in zip((convolved, mapped), weights.maps.chunk(2, -1), strict=True)
    ]
    u = torch.cat(parts, -1) + weights.bias.flatten(1)  # (B, T, H, 4 d)
    y, state = slstm_scan(u.permute(1, 2, 0, 3), weights.recurrent, state)
    return y.permute(2, 0, 1, 3).flatten(2), state


_NAMES = ("mapped", "before", *HeadWeights._fields, "y0", "c0", "n0", "m0")
_OPTIONAL = _NAMES.index("conv_bias")
_Tensors = tuple[Tensor, ...]


def _given(tensors: tuple[Any, ...]) -> dict[str, Any]:
    (B, T, _), taps, (H, _, d) = tensors[0].shape, tensors[2].shape[2], tensors[7].shape
    return {"batch": B, "time": T, "heads": H, "width": d, "taps": taps, **kernel.by_name(_NAMES, tensors)}


def _run(*inputs: Any) -> _Tensors:
    """Every y, the last c, n, m, and what the gradient needs if it is to be kept."""
    y, c, n, m, tape = (kernel.empty(*each.shape, like=inputs[0]) for each in _run_fake(*inputs))
    kernel.run("slstm", kernel.Slstm, **_given(inputs[:11]), y=y, c=c, n=n, m=m, tape=tape if inputs[11] else None)
    return y, c, n, m, tape


def _run_fake(*inputs: Any) -> _Tensors:
    mapped, state, keep = inputs[0], inputs[7], inputs[11]
    B, T, width = mapped.shape
    tape = mapped.new_empty(B, T, 6 * width) if keep else mapped.new_empty(0)
    return mapped.new_empty(B, T, width), *(state.new_empty(state.shape) for _ in range(3)), tape


def _backward(
    grad_y: Tensor, grad_c: Tensor | None, grad_n: Tensor | None, y: Tensor, tape: Tensor, *given: Any
) -> list[Tensor]:
    """The gradients of all tensors but m, which has none; that of a bias that is not there is empty."""
    shapes = _backward_fake(grad_y, grad_c, grad_n, y, tape, *given)
    found, values = kernel.gradients(_NAMES, shapes, slice(2, 7))
    ends = {"grad_c": grad_c, "grad_n": grad_n}
    values |= {name: None if each is None else each.contiguous() for name, each in ends.items()}
    (values["grad_y"],) = kernel.contiguous([grad_y])
    kernel.run("slstm_back", kernel.Slstm, **_given(given), y=y, tape=tape, **values)
    return found


def _backward_fake(grad_y: Tensor, grad_c: Any, grad_n: Any, y: Tensor, tape: Tensor, *given: Any) -> list[Tensor]:
    return [grad_y.new_empty(0 if each is None else each.shape) for each in given[:10]]


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(output[0], output[4], *inputs[:11])
    ctx.mark_non_differentiable(output[3], output[4])
    ctx.set_materialize_grads(False)


def _gradient(
    ctx: Any, grad_y: Tensor | None, grad_c: Tensor | None, grad_n: Tensor | None, *_: object
) -> tuple[Any, ...]:
    dispatch.refuse_tangent(grad_y, grad_c, grad_n)
    y, tape, *given = ctx.saved_tensors
    grad_y = torch.zeros_like(y) if grad_y is None else grad_y
    found = torch.ops.latchwork.slstm_backward(grad_y, grad_c, grad_n, y, tape, *given)
    if given[_OPTIONAL] is None:
        found[_OPTIONAL] = None
    return *found, None, None


_ARGUMENTS = ", ".join(f"Tensor{'?' if name == 'conv_bias' else ''} {name}" for name in _NAMES)
dispatch.register(
    f"slstm({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", _run, _run_fake, _save, _gradient
)
dispatch.register(
    f"slstm_backward(Tensor grad_y, Tensor? grad_c, Tensor? grad_n, Tensor y, Tensor tape, {_ARGUMENTS}) -> Tensor[]",
    _backward,
    _backward_fake,
)
