"""The loss of a language model without its logits: head and cross-entropy, a few rows at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from latchwork.ops import cpu, dispatch, transforms
from latchwork.ops.abi import Head
from latchwork.ops.scan import autocasts

BYTES = 4 << 20  # of logits at a time: they stay in the cache from the product to the gradient
FEWEST_ROWS = 256  # at a time: fewer make the product for the weight's gradient inefficient
MOST_CLASSES, LARGEST = 8192, 1 << 19  # classes, and elements of the weight, beyond which a BLAS is as good


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """Mean cross-entropy of the logits hidden weight' with targets, leaving out those equal to ignore_index.

    hidden: (N, d), weight: (V, d), targets: (N,). Equal to `mean_cross_entropy(F.linear(hidden, weight), targets)`,
    which is its definition and what a compiler is given; here the gradient is made with the loss, and of the logits
    (N, V) only as many rows exist at a time as fit a cache.
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
    asked = dispatch.asked_for()
    plain = transforms.unfit(hidden, weight) or ("autocast is on" if autocasts(hidden) else None)
    if asked == "cpu" and (reason := plain or cpu.unfit(hidden)):
        raise ValueError(f"backend 'cpu' cannot run: {reason}")
    if plain or asked == "reference" or torch.compiler.is_compiling():
        return mean_cross_entropy(F.linear(hidden, weight), targets, ignore_index)
    _check_targets(targets, weight.shape[0], ignore_index)
    learns = torch.is_grad_enabled()
    result: Tensor = _Loss.apply(hidden, weight, targets, ignore_index, learns)  # type: ignore[no-untyped-call]
    return result


def mean_cross_entropy(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """torch's `F.cross_entropy`, but the mean of nothing is 0, and so is its gradient; torch has NaN.

    logits: (N, V), targets: (N,), int64 or int32, in 0..V-1 or ignore_index. So a batch that is all padding changes
    nothing, whether it is a step of its own or one of several whose gradients are added.
    """
    _check_targets(targets, logits.shape[-1], ignore_index)
    loss = F.cross_entropy(logits, targets.long(), ignore_index=ignore_index)
    return torch.where((targets != ignore_index).any(), loss, 0)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int, learns: bool) -> Tensor:
        kept = targets != ignore_index
        numbers = torch.where(targets < 0, weight.shape[0], targets)  # beyond the range, where a GPU looks at it
        grad_hidden = hidden.new_empty(hidden.shape) if learns and ctx.needs_input_grad[0] else None
        grad_weight = weight.new_zeros(weight.shape) if learns and ctx.needs_input_grad[1] else None
        run = _by_kernel if _fits(hidden, weight) else _in_pieces
        count = kept.sum().clamp(min=1)
        total = run(hidden, weight, torch.where(kept, numbers, -1), count, grad_hidden, grad_weight)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dispatch.refuse_second_derivative(grad)
        grad_hidden, grad_weight = (None if each is None else each * grad for each in ctx.saved_tensors)
        return grad_hidden, grad_weight, None, None, None


def _check_targets(targets: Tensor, classes: int, ignore_index: int) -> None:
    """Their type; and their range on the CPU, where it costs little. A GPU checks it when it looks them up."""
    if targets.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"targets must be int64 or int32; got {targets.dtype}")
    if targets.device.type == "cpu" and not transforms.hides_numbers():
        wrong = targets[(targets != ignore_index) & ((targets < 0) | (targets >= classes))]
        if len(wrong):
            raise IndexError(f"targets must be at least 0 and less than {classes}; got {int(wrong[0])}")


def _in_pieces(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    count: Tensor,
    grad_hidden: Tensor | None,
    grad_weight: Tensor | None,
) -> Tensor:
    """The sum of the losses; writes the gradients of their mean. A target of -1 is left out."""
    rows = max(FEWEST_ROWS, BYTES // (weight.shape[0] * hidden.element_size()))
    total = hidden.new_zeros(())
    for start in range(0, hidden.shape[0], rows):
        piece = slice(start, start + rows)
        kept, wanted = targets[piece, None] >= 0, targets[piece, None].clamp(min=0)
        logits = hidden[piece] @ weight.t()
        best = logits.amax(-1, keepdim=True)
        right = logits.gather(1, wanted)
        sums = logits.sub_(best).exp_().sum(-1, keepdim=True)
        total += torch.where(kept, sums.log() + best - right, 0).sum()
        if grad_hidden is None and grad_weight is None:
            continue
        share = kept.to(logits.dtype) / count
        gradient = logits.mul_(share / sums).scatter_add_(1, wanted, -share)
        if grad_hidden is not None:
            torch.mm(gradient, weight, out=grad_hidden[piece])
        if grad_weight is not None:
            grad_weight.addmm_(gradient.t(), hidden[piece])
    return total


def _by_kernel(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    count: Tensor,
    grad_hidden: Tensor | None,
    grad_weight: Tensor | None,
) -> Tensor:
    """As `_in_pieces`, in one pass of the C++ kernel."""
    hidden, weight, targets = hidden.contiguous(), weight.contiguous(), targets.long().contiguous()
    losses = hidden.new_empty(hidden.shape[0])
    head = Head(
        *(hidden.shape[0], hidden.shape[1], weight.shape[0], torch.get_num_threads()),
        1 / int(count),
        *(hidden.data_ptr(), weight.data_ptr(), targets.data_ptr(), losses.data_ptr()),
        *(None if each is None else each.data_ptr() for each in (grad_hidden, grad_weight)),
    )
    cpu.call("latchwork_head", head)
    return losses.sum(dtype=torch.float64).float()


def _fits(hidden: Tensor, weight: Tensor) -> bool:
    return (
        cpu.MISSING is None
        and dispatch.asked_for() in ("auto", "cpu")
        and cpu.readable(hidden)
        and cpu.readable(weight)
        and hidden.dtype == weight.dtype == torch.float32
        and weight.shape[0] <= MOST_CLASSES
        and weight.numel() <= LARGEST
    )
