"""The permutation that a unit of whole levels chooses at a step, and soft weights that learn in its place."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import torch
from torch import Tensor
from torch.nn import functional as F

MOST = 6  # points: all permutations of more are too many to look at
ROUNDS = 10  # of Sinkhorn's iteration


def choose_permutation(logits: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """The permutation of the largest sum of logits (..., N, N), N at most 6; weights by `sinkhorn`, at a temperature.

    >>> choose_permutation(torch.tensor([[0.0, 2.0], [0.0, 1.0]]))[1]
    tensor([1, 0])
    """
    degree = logits.shape[-1]
    every = all_permutations(degree).to(logits.device)
    matrices = F.one_hot(every, degree).flatten(1).to(logits.dtype)
    sums = logits.detach().flatten(-2) @ matrices.T
    return sinkhorn(_wide(logits) / temperature).to(logits.dtype), every[sums.argmax(-1)]


def sinkhorn(logits: Tensor) -> Tensor:
    """exp(logits), rows and columns scaled in turn to sum to one: nearly a mix of permutations."""
    for _ in range(ROUNDS):
        logits = logits - logits.logsumexp(-1, keepdim=True)
        logits = logits - logits.logsumexp(-2, keepdim=True)
    return logits.exp()


@cache
def all_permutations(degree: int) -> Tensor:
    """(N!, N), in lexicographic order."""
    return torch.tensor(list(permutations(range(degree))), device="cpu")


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
