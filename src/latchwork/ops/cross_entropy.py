"""The head of a language model without its logits: linear_cross_entropy, its loss, and linear_best, its best token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.ops import dispatch, transforms
from latchwork.ops.arguments import autocasts
from latchwork.ops.cpu import cross_entropy as kernel
from latchwork.ops.cpu.layer import NORMS
from latchwork.ops.torch import cross_entropy as pieces


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """Mean cross-entropy of the logits hidden weight' with targets, leaving out those equal to ignore_index.

    hidden: (N, d), weight: (V, d), targets: (N,). Equal to `mean_cross_entropy(F.linear(hidden, weight), targets)`,
    which is its definition. The gradients are computed together with the loss, those that are needed and no others,
    and of the logits (N, V) only as many rows exist at a time as fit a cache.
    """
    if (
        hidden.dim() != 2
        or weight.dim() != 2
        or targets.shape != hidden.shape[:1]
        or hidden.shape[1] != weight.shape[1]
    ):
        raise ValueError(
            "hidden, weight and targets must be (N, d), (V, d) and (N,); "
            f"got {tuple(hidden.shape)}, {tuple(weight.shape)} and {tuple(targets.shape)}"
        )
    name = dispatch.choose("cross_entropy", "auto", hidden, weight)
    if name == "reference" or autocasts(hidden):
        return mean_cross_entropy(F.linear(hidden, weight), targets, ignore_index)
    if name == "cpu" and not kernel.pays(hidden, weight):
        name = "torch"
    learns = torch.is_grad_enabled()
    of_hidden, of_weight = learns and hidden.requires_grad, learns and weight.requires_grad
    run = torch.ops.latchwork.linear_cross_entropy
    loss: Tensor = run(hidden, weight, targets, ignore_index, of_hidden, of_weight, name)[0]
    return loss


def linear_best(
    hidden: Tensor,
    weight: Tensor,
    norm: str = "none",
    epsilon: float = 0.0,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
) -> Tensor:
    """The number of the largest of the logits norm(hidden) weight' for each row, the first of equal ones; int64 (N,).

    hidden: (N, d), weight: (V, d). A row with a NaN among its logits has -1. norm: "none", "layernorm" or "rmsnorm",
    with its epsilon, weight (d,) and bias (d,). Without gradients. Its definition is `first_of_largest` of the logits,
    of which only as many rows exist at a time as fit a cache.

    >>> linear_best(torch.eye(3), torch.tensor([[1.0, 0.0, 2.0], [1.0, 5.0, 0.0]]))
    tensor([0, 1, 0])
    """
    if hidden.dim() != 2 or weight.dim() != 2 or hidden.shape[1] != weight.shape[1] or not weight.shape[0]:
        raise ValueError(
            "hidden and weight must be (N, d) and (V, d) with V > 0; "
            f"got {tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}; got {norm!r}")
    given = [each for each in (norm_weight, norm_bias) if each is not None]
    for name, each in {"norm_weight": norm_weight, "norm_bias": norm_bias}.items():
        if each is not None and each.shape != hidden.shape[1:]:
            raise ValueError(f"{name} must be (d,) = {tuple(hidden.shape[1:])}; got {tuple(each.shape)}")
    name = dispatch.choose("cross_entropy", "auto", hidden, weight, *given)
    arguments = hidden.detach(), weight.detach(), norm, epsilon, norm_weight, norm_bias
    if name == "reference" or autocasts(hidden):
        return pieces.first_of_largest(F.linear(pieces.normed(hidden, *arguments[2:]), weight))
    whole = norm == "none" or (norm_weight is not None and (norm == "rmsnorm" or norm_bias is not None))
    if name == "cpu" and not (whole and kernel.pays(hidden, weight, *given)):
        name = "torch"
    found: Tensor = torch.ops.latchwork.linear_best(*arguments, name)
    return found


def mean_cross_entropy(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """torch's `F.cross_entropy`, but where all targets are ignored the loss and its gradient are 0; torch has NaN.

    logits: (N, V), targets: (N,), int64 or int32, in 0..V-1 or ignore_index. So a batch of padding alone changes
    nothing, also where the gradients of several batches are added.
    """
    _check_targets(targets, logits.shape[-1], ignore_index)
    loss = F.cross_entropy(logits, targets.long(), ignore_index=ignore_index)
    return torch.where((targets != ignore_index).any(), loss, 0)


def _check_targets(targets: Tensor, classes: int, ignore_index: int) -> None:
    """Check their type, and on the CPU their range. A GPU checks the range when it looks them up."""
    if targets.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"targets must be int64 or int32; got {targets.dtype}")
    if targets.device.type == "cpu" and not transforms.hides_numbers():
        wrong = targets[(targets != ignore_index) & ((targets < 0) | (targets >= classes))]
        if len(wrong):
            raise IndexError(f"targets must be at least 0 and less than {classes}; got {int(wrong[0])}")


def _run(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    ignore_index: int,
    of_hidden: bool,
    of_weight: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, and its gradients of hidden and weight; one that is not asked for is empty."""
    _check_targets(targets, weight.shape[0], ignore_index)
    kept = targets != ignore_index
    numbers = torch.where(targets < 0, weight.shape[0], targets)  # beyond the range, where a GPU looks at it
    grad_hidden = hidden.new_empty(hidden.shape if of_hidden else 0)
    grad_weight = weight.new_zeros(weight.shape if of_weight else 0)
    count = kept.sum().clamp(min=1)
    losses = dispatch.BACKENDS["cross_entropy"][backend].losses
    found = grad_hidden if of_hidden else None, grad_weight if of_weight else None
    total = losses(hidden, weight, torch.where(kept, numbers, -1), count, *found)
    return total / count, grad_hidden, grad_weight


def _fake(
    hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int, of_hidden: bool, of_weight: bool, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    grad_hidden = hidden.new_empty(hidden.shape if of_hidden else 0)
    return hidden.new_empty(()), grad_hidden, weight.new_empty(weight.shape if of_weight else 0)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *_, ctx.of_hidden, ctx.of_weight, _ = inputs
    ctx.save_for_backward(*output[1:])
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    dispatch.refuse_tangent(grad)
    found: tuple[Tensor | None, Tensor | None] = (None, None)
    if grad is not None:
        found = torch.ops.latchwork.linear_cross_entropy_backward(grad, *ctx.saved_tensors)
    return found[0] if ctx.of_hidden else None, found[1] if ctx.of_weight else None, *(None,) * 5


dispatch.register(
    "linear_cross_entropy(Tensor hidden, Tensor weight, Tensor targets, int ignore_index, bool of_hidden, "
    "bool of_weight, str backend) -> (Tensor, Tensor, Tensor)",
    _run,
    _fake,
    _save,
    _gradient,
)
dispatch.register(
    "linear_cross_entropy_backward(Tensor grad, Tensor grad_hidden, Tensor grad_weight) -> (Tensor, Tensor)",
    lambda grad, grad_hidden, grad_weight: (grad_hidden * grad, grad_weight * grad),
    lambda grad, grad_hidden, grad_weight: (torch.empty_like(grad_hidden), torch.empty_like(grad_weight)),
)
dispatch.register(
    "linear_best(Tensor hidden, Tensor weight, str norm, float epsilon, Tensor? norm_weight, Tensor? norm_bias, "
    "str backend) -> Tensor",
    lambda *arguments: dispatch.BACKENDS["cross_entropy"][arguments[-1]].best(*arguments[:-1]),
    lambda hidden, *_: hidden.new_empty(hidden.shape[0], dtype=torch.int64),
)
