"""A linear map of the last dimension and what stands around it: in torch, and as one operation of the C++ kernel.

torch's matrix products reach half the speed of a processor that its library was not made for, and each of its
elementwise operations reads and writes a tensor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.baselines import kernel
from latchwork.ops import dispatch

ACTIVATIONS: dict[str, Any] = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
}  # in the order of csrc/baselines/abi.h


class Norm(NamedTuple):
    """A norm of each of `heads` parts of a row: divided by its root mean square, its mean 0 before if it is centred."""

    weight: Tensor  # (D,)
    epsilon: float
    heads: int = 1
    centred: bool = True


def linear(
    u: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    skip: tuple[Tensor, Tensor] | None = None,
    gate: Tensor | None = None,
    paired: bool = False,
    activation: str = "silu",
    residual: Tensor | None = None,
    dropout: float = 0.0,
    drops_before: bool = False,
) -> Tensor:
    """residual + dropout(weight z + bias), with z = (norm(u) + skip[0] * skip[1]) * activation(gate).

    u, skip[1], gate: (..., D). skip[0]: (D,). weight: (outputs, D). residual and the result: (..., outputs). Every part
    may be left out. paired: u is (..., 2 D), and its first half the gate. drops_before: the dropout is that of u.
    With weight (H, outputs, d) each of the H blocks of u has its own, and D = H d; the result is (..., H outputs).
    """
    tensors: tuple[Any, ...] = (u, weight, bias, norm and norm.weight, *(skip or (None, None)), gate, residual)
    how: tuple[Any, ...] = (norm.epsilon, norm.heads, norm.centred) if norm else (0.0, 1, False)
    how = (*how, activation, paired, dropout, drops_before)
    if u.numel() and kernel.takes(*tensors):
        seed = torch.randint(2**62, ()) if dropout else None
        y: Tensor = torch.ops.latchwork.linear(*tensors, seed, *how)
        return y
    return plain_linear(*tensors, *how)


def plain_linear(
    u: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: Tensor | None,
    skip: Tensor | None,
    skipped: Tensor | None,
    gate: Tensor | None,
    residual: Tensor | None,
    epsilon: float,
    heads: int,
    centred: bool,
    activation: str,
    paired: bool,
    dropout: float,
    drops_before: bool,
) -> Tensor:
    """The definition."""
    if paired:
        gate, u = u.chunk(2, -1)
    if drops_before:
        u = F.dropout(u, dropout)
    if norm is not None:
        parts = u.reshape(*u.shape[:-1], heads, -1)
        parts = parts - parts.mean(-1, keepdim=True) if centred else parts
        u = (parts * (parts.square().mean(-1, keepdim=True) + epsilon).rsqrt()).flatten(-2) * norm
    if skip is not None and skipped is not None:
        u = u + skip * skipped
    if gate is not None:
        u = u * ACTIVATIONS[activation](gate)
    if weight is not None and weight.dim() == 2:
        u = F.linear(u, weight, bias)
    elif weight is not None:
        u = torch.einsum("...hd,hod->...ho", u.reshape(*u.shape[:-1], len(weight), -1), weight).flatten(-2)
        u = u if bias is None else u + bias
    u = u if drops_before else F.dropout(u, dropout)
    return u if residual is None else u + residual


def weight_gradient(grad_y: Tensor, u: Tensor, blocks: int = 1) -> tuple[Tensor, Tensor]:
    """By the kernel, the gradients of the weight (blocks, outputs, inputs) and the bias of `linear` with blocks."""
    weight = u.new_empty(blocks, grad_y.shape[-1] // blocks, u.shape[-1] // blocks)
    values = given((u, weight, *[None] * 7), (0.0, 1, False, "silu", False, 0.0, False))
    grad_bias = u.new_empty(grad_y.shape[-1])
    grads = {"grad_y": rows(grad_y), "grad_weight": torch.empty_like(weight), "grad_bias": grad_bias}
    kernel.run("linear", kernel.LinearMap, **values, **grads)
    return grads["grad_weight"], grad_bias  # type: ignore[return-value]


def rows(u: Tensor | None) -> Tensor | None:
    """u as (rows, width), copied if the kernel could not read it."""
    if u is None:
        return None
    (flat,) = kernel.contiguous([u.reshape(-1, u.shape[-1])])
    return flat if flat.stride(0) >= flat.shape[1] else flat.contiguous()  # type: ignore[no-any-return]


def _halves(u: Tensor, paired: bool) -> tuple[Tensor | None, Tensor]:
    """The gate in u, and the rest."""
    return u.chunk(2, -1) if paired else (None, u)  # type: ignore[return-value]


def given(tensors: tuple[Tensor | None, ...], options: tuple[Any, ...]) -> dict[str, Any]:
    """What forward and backward give the kernel alike; tensors and options as `torch.ops.latchwork.linear` has them."""
    u, weight, bias, norm, skip, mixed, gate, residual, seed = tensors
    epsilon, heads, centred, activation, paired, dropout, drops_before = options
    assert u is not None
    found, u = _halves(u, paired)
    *blocks, outputs, inputs = weight.shape if weight is not None else (u.shape[-1], u.shape[-1])
    return {
        "rows": u.numel() // u.shape[-1],
        "blocks": blocks[0] if blocks else 1,
        "outputs": outputs,
        "inputs": inputs,
        "heads": heads,
        "centred": int(centred),
        "activation": list(ACTIVATIONS).index(activation),
        "seed": 0 if seed is None else int(seed),
        "drops_before": int(drops_before),
        "epsilon": epsilon,
        "dropout": dropout,
        "x": rows(u),
        "mixed": rows(mixed),
        "gate": rows(found if paired else gate),
        "residual": rows(residual),
        **dict(zip(("weight", "bias", "norm", "skip"), map(_whole, (weight, bias, norm, skip)), strict=True)),
    }


def _whole(a: Tensor | None) -> Tensor | None:
    return None if a is None else a.contiguous()


def _out(u: Tensor, weight: Tensor | None, *rest: Any) -> Tensor:
    width = u.shape[-1] // (2 if rest[11] else 1)
    return u.new_empty(*u.shape[:-1], width if weight is None else weight.shape[:-1].numel())


def _run(*inputs: Any) -> Tensor:
    y = kernel.empty(*_out(*inputs).shape, like=inputs[0])
    kernel.run("linear", kernel.LinearMap, **given(inputs[:9], inputs[9:]), y=y)
    return y


_LEARNT = ("u", "weight", "bias", "norm", "skip", "mixed", "gate")


def _backward(grad_y: Tensor, of_u: bool, *inputs: Any) -> list[Tensor]:
    """The gradients of the first seven tensors; one that is not asked for is empty."""
    found = [kernel.empty(*each.shape, like=grad_y) for each in _backward_fake(grad_y, of_u, *inputs)]
    grads: dict[str, Any] = {name: each if len(each) else None for name, each in zip(_LEARNT, found, strict=True)}
    if (grad_u := grads.pop("u")) is not None:
        gate, rest = _halves(grad_u, inputs[13])
        grads["x"], grads["gate"] = rest.view(-1, rest.shape[-1]) if gate is None else rows(rest), rows(gate)
        grads["gate"] = rows(found[6]) if len(found[6]) else grads["gate"]
    grads["mixed"] = rows(grads["mixed"])
    values = given((*inputs[:7], None, inputs[8]), inputs[9:])
    kernel.run(
        "linear",
        kernel.LinearMap,
        **values,
        grad_y=rows(grad_y),
        **{f"grad_{name}": each for name, each in grads.items()},
    )
    return found


def _backward_fake(grad_y: Tensor, of_u: bool, *inputs: Any) -> list[Tensor]:
    plain = not inputs[13] and all(each is None for each in inputs[3:7]) and not (inputs[14] and inputs[15])
    wanted = [of_u or not plain, *(each is not None for each in inputs[1:7])]
    return [grad_y.new_empty(each.shape if want else 0) for each, want in zip(inputs[:7], wanted, strict=True)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7], inputs[8])
    ctx.options = inputs[9:]


def _gradient(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    dispatch.refuse_tangent(grad_y)
    *tensors, seed = ctx.saved_tensors
    of_u = ctx.needs_input_grad[0]
    found = torch.ops.latchwork.linear_backward(grad_y, of_u, *tensors, None, seed, *ctx.options)
    grads = (each if len(each) else None for each in found)
    return *grads, grad_y if ctx.needs_input_grad[7] else None, *([None] * (1 + len(ctx.options)))


_NAMES = ("weight", "bias", "norm", "skip", "mixed", "gate", "residual", "seed")
_ARGUMENTS = f"Tensor u, {', '.join(f'Tensor? {name}' for name in _NAMES)}, float epsilon, int heads, bool centred"
_ARGUMENTS += ", str activation, bool paired, float dropout, bool drops_before"
dispatch.register(f"linear({_ARGUMENTS}) -> Tensor", _run, _out, _save, _gradient)
dispatch.register(
    f"linear_backward(Tensor grad_y, bool of_u, {_ARGUMENTS}) -> Tensor[]",
    _backward,
    _backward_fake,
)
