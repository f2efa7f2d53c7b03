"""The mLSTM's layer between its two projections: in plain torch, and as one operation of the C++ kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from latchwork.baselines import kernel
from latchwork.baselines.causal_conv import MOST_TAPS, causal_conv
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.mlstm_scan import EPSILON, MLSTMCellState, mlstm_heads, tape_size
from latchwork.ops import dispatch


class MixerWeights(NamedTuple):
    """Of a layer with H heads of d channels, W = H d."""

    conv: Tensor  # (W, 1, taps)
    conv_bias: Tensor | None  # (W,)
    of_q: Tensor  # (W / b, b, b), outputs before inputs: a linear map of every b channels by themselves
    of_k: Tensor
    of_v: Tensor
    gates: Tensor  # (2 H, 3 W): i of each head and then f, from q, k and v
    gate_bias: Tensor  # (2 H,)
    norm: Tensor  # (W,)
    skip: Tensor  # (W,)


def mlstm_mixer(
    mapped: Tensor, before: Tensor, weights: MixerWeights, state: MLSTMCellState, norm_epsilon: float
) -> tuple[Tensor, MLSTMCellState]:
    """(norm(h) + skip u) silu(gate), (B, T, W), and the state after; h is what the mLSTM gives for q, k, v, i and f.

    mapped: (B, T, 2 W), v's source w and the gate side by side. u: silu of the causal convolution of w, which goes on
    from before: (B, taps - 1, W). q and k are linear in u, v is in w, i and f are in all three. The norm is that of
    each head. k is multiplied by d^-1/2. The C++ kernel takes maps of four channels.
    """
    taps = weights.conv.shape[2]
    fits = weights.of_q.shape[1] == 4 and state.n.shape[2] % 4 == 0 and 1 < taps <= MOST_TAPS and mapped.numel() > 0
    if not fits or not kernel.takes(mapped, before, *weights, *state):
        return plain_mlstm_mixer(mapped, before, weights, state, norm_epsilon)
    # The gates are linear in q, k and v, which are linear in u and w: both maps in one.
    of_q, of_k, of_v = (
        torch.einsum("gho,hod->ghd", each.reshape(len(each), len(part), -1), part).flatten(1)
        for each, part in zip(weights.gates.chunk(3, -1), weights[2:5], strict=True)
    )
    weights = weights._replace(gates=torch.cat([of_q + of_k, of_v], 1))
    y, c, n, m, _ = torch.ops.latchwork.mlstm_mixer(
        mapped, before, *weights, state.c, state.n, state.m[..., 0], norm_epsilon, torch.is_grad_enabled()
    )
    return y, MLSTMCellState(c, n, m[..., None])


def plain_mlstm_mixer(
    mapped: Tensor, before: Tensor, weights: MixerWeights, state: MLSTMCellState, norm_epsilon: float
) -> tuple[Tensor, MLSTMCellState]:
    """The definition."""
    heads, width = state.n.shape[1:]
    w, gate = mapped.chunk(2, -1)
    u = causal_conv(w, before, weights.conv, weights.conv_bias)
    q, k, v = _blockwise(u, weights.of_q), _blockwise(u, weights.of_k), _blockwise(w, weights.of_v)
    i, f = linear(torch.cat([q, k, v], -1), weights.gates, weights.gate_bias).chunk(2, -1)
    y, state = mlstm_heads(q, k, v, i, f, state, scale=width**-0.5)
    norm = Norm(weights.norm, norm_epsilon, heads)
    return linear(y, norm=norm, skip=(weights.skip, u), gate=gate), state


def _blockwise(u: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("bthd,hod->btho", u.reshape(*u.shape[:2], len(weight), -1), weight).reshape(u.shape)


_Tensors = tuple[Tensor, ...]
_NAMES = ("mapped", "before", *MixerWeights._fields, "c0", "n0", "m0")
_OPTIONAL = MixerWeights._fields.index("conv_bias") + 2


def _given(tensors: tuple[Any, ...], norm_epsilon: float) -> dict[str, Any]:
    (B, T, _), (heads, width), taps = tensors[0].shape, tensors[12].shape[1:], tensors[2].shape[2]
    sizes = {"batch": B, "time": T, "heads": heads, "width": width, "taps": taps}
    numbers = {"scale": width**-0.5, "epsilon": EPSILON, "norm_epsilon": norm_epsilon}
    return {**sizes, **numbers, **kernel.by_name(_NAMES, tensors)}


def _run(*inputs: Any) -> _Tensors:
    """The result, the last state, and the states before each chunk if they are to be kept."""
    y, c, n, m, tape = (kernel.empty(*each.shape, like=inputs[0]) for each in _run_fake(*inputs))
    wanted = {"y": y, "c": c, "n": n, "m": m, "tape": tape if inputs[15] else None}
    kernel.run("mlstm_mixer", kernel.MlstmMixer, **_given(inputs[:14], inputs[14]), **wanted)
    return y, c, n, m, tape


def _run_fake(*inputs: Any) -> _Tensors:
    mapped, c, keep = inputs[0], inputs[11], inputs[15]
    B, T, twice = mapped.shape
    tape = mapped.new_empty(tape_size(c, T) if keep else 0)
    return mapped.new_empty(B, T, twice // 2), *(each.new_empty(each.shape) for each in inputs[11:14]), tape


def _backward(grad_y: Tensor, grad_c: Tensor | None, grad_n: Tensor | None, tape: Tensor, *inputs: Any) -> list[Tensor]:
    """The gradients of all tensors but m; that of a bias that is not there is empty."""
    shapes = _backward_fake(grad_y, grad_c, grad_n, tape, *inputs)
    found, values = kernel.gradients(_NAMES, shapes, slice(2, 11))
    ends = {"grad_c": grad_c, "grad_n": grad_n}
    values |= {name: None if each is None else each.contiguous() for name, each in ends.items()}
    (values["grad_y"],) = kernel.contiguous([grad_y])
    kernel.run("mlstm_mixer_back", kernel.MlstmMixer, **_given(inputs[:14], inputs[14]), tape=tape, **values)
    return found


def _backward_fake(grad_y: Tensor, grad_c: Any, grad_n: Any, tape: Tensor, *inputs: Any) -> list[Tensor]:
    return [grad_y.new_empty(0 if each is None else each.shape) for each in inputs[:13]]


def _save(ctx: Any, inputs: tuple[Any, ...], output: _Tensors) -> None:
    ctx.save_for_backward(output[4], *inputs[:14])
    ctx.norm_epsilon = inputs[14]
    ctx.mark_non_differentiable(*output[3:])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_y: Tensor | None, *grad_state: Tensor | None) -> tuple[Any, ...]:
    grad_c, grad_n = grad_state[:2]
    dispatch.refuse_tangent(grad_y, grad_c, grad_n)
    tape, mapped, *given = ctx.saved_tensors
    grad_y = torch.zeros_like(mapped[..., : mapped.shape[2] // 2]) if grad_y is None else grad_y
    found = torch.ops.latchwork.mlstm_mixer_backward(grad_y, grad_c, grad_n, tape, mapped, *given, ctx.norm_epsilon)
    if given[_OPTIONAL - 1] is None:
        found[_OPTIONAL] = None
    return *found, None, None, None


_ARGUMENTS = ", ".join(f"Tensor{'?' if name == 'conv_bias' else ''} {name}" for name in _NAMES)
_ARGUMENTS += ", float norm_epsilon"
dispatch.register(
    f"mlstm_mixer({_ARGUMENTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _run,
    _run_fake,
    _save,
    _gradient,
)
dispatch.register(
    f"mlstm_mixer_backward(Tensor grad_y, Tensor? grad_c, Tensor? grad_n, Tensor tape, {_ARGUMENTS}) -> Tensor[]",
    _backward,
    _backward_fake,
)
