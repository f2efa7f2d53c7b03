"""Weight initialisers, each with its formula. All work in place and return nothing."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

S_R_INITS = ("small_init", "kaiming", "asymmetric", "spread")  # of r and s


def small_init_init_(weight: Tensor, dim: int) -> None:
    """N(0, 2 / (5 dim)), for projections of an input of width dim."""
    nn.init.normal_(weight, std=sqrt(2 / (5 * dim)))


def wang_init_(weight: Tensor, dim: int, n_layers: int) -> None:
    """N(0, (2 / (n_layers sqrt(dim)))^2), for projections of width dim back into the residual stream."""
    nn.init.normal_(weight, std=2 / (n_layers * sqrt(dim)))


def kaiming_init_(weight: Tensor) -> None:
    """Uniform in +-1 / sqrt(fan in): Kaiming's rule with a = sqrt 5, as in nn.Linear."""
    nn.init.kaiming_uniform_(weight, a=sqrt(5))


@torch.no_grad()
def spread_init_(bias_r: Tensor, bias_s: Tensor, reach: float = 1.0, slack: float = 0.3) -> None:
    """Each latch around its own level: c uniform in +-reach, b_r = c + slack and b_s = c - slack.

    With all biases 0 every latch starts at one level, that of x0, where few inputs set or reset it.
    """
    level = torch.empty_like(bias_r).uniform_(-reach, reach)
    bias_r.copy_(level + slack)
    bias_s.copy_(level - slack)


@torch.no_grad()
def levels_init_(x0: Tensor, lowest: float = -1.0) -> None:
    """Each row of x0 (U, N): the N levels from lowest to 1, evenly spaced, each row in its own random order."""
    units, degree = x0.shape
    order = torch.rand(units, degree).argsort(-1)
    x0.copy_(torch.linspace(lowest, 1, degree)[order])


@torch.no_grad()
def permutation_init_(weight: Tensor, bias: Tensor) -> None:
    """R for units of degree n: between two random permutations, where a random direction of the input says.

    weight (U, N, N, d_model) and bias (U, N, N) of R(u) = weight u + bias. With P, Q two permutation matrices of -1
    and 1 and z = <w, u> of variance 1 for an input of variance 1: R(u) = (P + Q) / 2 + z (P - Q) / 2. So R is P at
    z = 1 and Q at z = -1, and an entry on which they agree is exactly -1 or 1 for every u.
    """
    units, degree, _, width = weight.shape
    order = torch.rand(2, units, degree).argsort(-1)
    p, q = 2 * nn.functional.one_hot(order, degree).to(weight) - 1
    direction = torch.randn(units, 1, 1, width).to(weight) / sqrt(width)
    bias.copy_((p + q) / 2)
    weight.copy_((p - q)[..., None] / 2 * direction)


def choice_init_(weight: Tensor, dim: int) -> None:
    """Logits of cells that move whole levels, for an input of width dim and variance 1: N(0, 0.1^2), nearly even."""
    nn.init.normal_(weight, std=0.1 / sqrt(dim))
