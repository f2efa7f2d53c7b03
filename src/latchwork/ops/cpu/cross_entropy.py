"""The head and its cross-entropy or best class by the C++ kernel, for float32 and few classes: csrc/head.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel
from latchwork.ops.cpu.abi import Best, Head, Norm
from latchwork.ops.cpu.layer import NORMS

MOST_CLASSES, LARGEST = 8192, 1 << 19  # classes, and elements of the weight, beyond which a BLAS is as good


def unfit(hidden: Tensor) -> str | None:
    """Why the kernel cannot take hidden, or None."""
    return kernel.unfit(hidden, "hidden")


def pays(hidden: Tensor, weight: Tensor, *others: Tensor) -> bool:
    """Whether the kernel takes these tensors, and is faster than matrix products."""
    tensors = hidden, weight, *others
    return (
        all(each.dtype == torch.float32 for each in tensors)
        and kernel.readable(*tensors)
        and weight.shape[0] <= MOST_CLASSES
        and weight.numel() <= LARGEST
    )


def losses(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    count: Tensor,
    grad_hidden: Tensor | None,
    grad_weight: Tensor | None,
) -> Tensor:
    """As in ops/torch/cross_entropy.py, in one pass."""
    hidden, weight, targets = hidden.contiguous(), weight.contiguous(), targets.long().contiguous()
    losses = hidden.new_empty(hidden.shape[0])
    head = Head(
        *(hidden.shape[0], hidden.shape[1], weight.shape[0], torch.get_num_threads()),
        1 / int(count),
        *(hidden.data_ptr(), weight.data_ptr(), targets.data_ptr(), losses.data_ptr()),
        None if grad_hidden is None else grad_hidden.data_ptr(),
        None if grad_weight is None else grad_weight.data_ptr(),
    )
    kernel.call("latchwork_head", head)
    return losses.sum(dtype=torch.float64).float()


def best(
    hidden: Tensor,
    weight: Tensor,
    norm: str,
    epsilon: float,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
) -> Tensor:
    """As in ops/torch/cross_entropy.py, in one pass."""
    given = [None if each is None else each.contiguous() for each in (norm_weight, norm_bias, hidden, weight)]
    found = hidden.new_empty(hidden.shape[0], dtype=torch.int64)
    of_weight, of_bias, x, of_head = [None if each is None else each.data_ptr() for each in given]
    sizes = (hidden.shape[0], hidden.shape[1], weight.shape[0], torch.get_num_threads())
    how = Norm(NORMS.index(norm), epsilon, of_weight, of_bias)
    kernel.call("latchwork_best", Best(*sizes, how, x, of_head, found.data_ptr()))
    return found
