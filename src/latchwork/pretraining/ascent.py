"""Sharpness-aware steps: the gradient that a step follows is taken a little uphill from where the weights are.

Among weights of the same loss those generalise better around which it rises slowly. So the weights go a distance along
the gradient of a part of the batch, the gradient of the whole batch is taken there, and from where they were they step
along that (Foret and others, "Sharpness-Aware Minimization", 2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

PART = 3  # the gradient uphill is that of one row in so many
LEAST = 1e-12  # a gradient of less than this has no direction: its squares are rounded to 0


@contextmanager
def uphill(parameters: Iterable[nn.Parameter], distance: float) -> Iterator[None]:
    """Within it the parameters stand so far along their gradients, all together, and have none; then where they were.

    >>> weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> with uphill([weight], 0.5):
    ...     print(weight.tolist(), weight.grad)
    [1.2999999523162842, 2.4000000953674316] None
    >>> weight.tolist()
    [1.0, 2.0]
    """
    moved = [each for each in parameters if each.grad is not None]
    before = [each.detach().clone() for each in moved]
    norm = nn.utils.get_total_norm([each.grad for each in moved if each.grad is not None])
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    length = max(float(norm), LEAST)
    try:
        with torch.no_grad():
            for each in moved:
                assert each.grad is not None
                each.add_(each.grad, alpha=distance / length)
                each.grad = None
        yield
    finally:
        with torch.no_grad():
            for each, value in zip(moved, before, strict=True):
                each.copy_(value)
