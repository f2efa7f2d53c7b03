"""What a network computes, whatever the order of its sums: a value, and how far from it any run may be.

A run is in float32 or in float64. Each of its operations is exact up to a factor of 1 + d, |d| <= unit = 2^-24 or
2^-53; a sum of n products, added in any order, fused or not, is off by at most n unit / (1 - n unit) times the sum of
the products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). The value is
itself a run in float64, so its own error is added: `gamma`. How errors grow from one operation to the next is bounded
in the Euclidean norm of a row: by the largest singular value of a matrix, by 1 / sigma for a norm. Bounds entry by
entry forget that errors cancel and are worse. For float32 the bounds come to 0.01 to 0.05 for a layer of width 32,
thousands of times what is seen: wide, but narrower than the steps of a grid of few levels.
Sigmoids are taken to be right to 16 units in the last place. Underflow is covered by TINY, be numbers below 2^-126
kept, or flushed to zero when they come out or when they go in; a number beyond LARGEST, whose square might overflow, is
an error. Coarser arithmetic (bfloat16, TF32, int8) is not covered.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from latchwork.modules.conv import BasicConv, GatedConv
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.layer import MinMaxLayer

UNITS = {"float32": 2.0**-24, "float64": 2.0**-53}
SLACK = 1 + 1e-6
TINY, LARGEST = 1e-30, 1e15
SIGMOID_ULPS = 16


class Bounded(NamedTuple):
    """Rows of numbers, (..., d), that differ from value by a vector no longer than radius, (..., 1).

    unit: of the runs that are meant, the largest relative error of one rounding.
    """

    value: Tensor
    radius: Tensor
    unit: float

    @staticmethod
    def exact(value: Tensor, unit: float) -> Bounded:
        """Numbers known exactly: embeddings."""
        return Bounded(value.double(), value.new_full((*value.shape[:-1], 1), TINY, dtype=torch.float64), unit)


def gamma(n: int, unit: float) -> float:
    """The relative error of n roundings one upon the other, of a run and of the value together."""
    return SLACK * n * (unit + UNITS["float64"]) / (1 - n * unit)


def _rounded(value: Tensor, radius: Tensor, unit: float) -> Bounded:
    """With a little more, for the roundings of the radius and for underflow. radius: of rows, or of entries."""
    if value.numel() and not float(value.abs().max()) + float(radius.max()) < LARGEST:
        raise OverflowError(f"a number may be beyond {LARGEST:g}, or is not finite")
    return Bounded(value, radius * SLACK + TINY, unit)


def length(rows: Tensor) -> Tensor:
    """The Euclidean norm of each row, (..., 1)."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return norms


def add(a: Bounded, b: Bounded, terms: int = 0) -> Bounded:
    """a + b. terms: of the sum that b is, where a may be one term more of it."""
    value, radius = a.value + b.value, a.radius + b.radius
    inside = gamma(terms, a.unit) * (length(a.value) + a.radius)
    return _rounded(value, radius + inside + gamma(1, a.unit) * (length(value) + radius), a.unit)


def multiply(a: Bounded, b: Bounded) -> Bounded:
    """a b, entry by entry."""
    value = a.value * b.value
    largest_a, largest_b = (each.value.abs().amax(-1, keepdim=True) for each in (a, b))
    radius = largest_a * b.radius + largest_b * a.radius + a.radius * b.radius
    return _rounded(value, radius + gamma(1, a.unit) * (length(value) + radius), a.unit)


def product(x: Bounded, weight: Tensor, bias: Tensor | None = None) -> Bounded:
    """weight x + bias, summed in any order."""
    value, own = _sums(x, weight, bias)
    grown = torch.linalg.matrix_norm(weight.detach().double(), 2) * x.radius
    return _rounded(value, grown + length(own), x.unit)


def product_by_entry(x: Bounded, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """weight x + bias, and how far off each entry may be, both (..., outputs)."""
    value, own = _sums(x, weight, bias)
    grown = x.radius * length(weight.detach().double()).squeeze(-1)
    value, radius, _ = _rounded(value, grown + own, x.unit)
    return value, radius


def _sums(x: Bounded, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """weight x + bias, and what the product's own roundings add to each entry."""
    w = weight.detach().double()
    value, size = x.value @ w.T, x.value.abs() @ w.abs().T + x.radius * length(w).squeeze(-1)
    if bias is not None:
        value, size = value + bias.detach().double(), size + bias.detach().double().abs()
    lost = TINY * (x.value.abs().sum(-1, keepdim=True) + w.shape[1] * x.radius)  # by weights below 2^-126
    return value, gamma(w.shape[1] + 3, x.unit) * size + lost


def relu(x: Bounded) -> Bounded:
    """max(x, 0)."""
    return Bounded(x.value.relu(), x.radius, x.unit)


def sigmoid(x: Bounded) -> Bounded:
    """1 / (1 + exp(-x)), which is nowhere steeper than 1/4."""
    value, grown = x.value.sigmoid(), x.radius / 4
    return _rounded(value, grown + gamma(2 * SIGMOID_ULPS, x.unit) * (length(value) + grown), x.unit)


def normalise(norm: nn.Module, x: Bounded) -> Bounded:
    """LayerNorm, RMSNorm or none, whichever way mean and variance are summed."""
    if isinstance(norm, nn.Identity):
        return x
    if not isinstance(norm, (nn.LayerNorm, nn.RMSNorm)):
        raise TypeError(f"norm must be LayerNorm, RMSNorm or Identity; got {type(norm).__name__}")
    n, unit = x.value.shape[-1], x.unit
    eps = norm.eps if norm.eps is not None else 2 * unit  # torch.finfo's, of the run's own precision
    mean = x.value.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else torch.zeros_like(x.radius)
    centred = x.value - mean
    variance = centred.square().mean(-1, keepdim=True)
    steep = (variance + eps).rsqrt()
    weight = torch.ones(n, dtype=torch.float64) if norm.weight is None else norm.weight.detach().double()
    bias = getattr(norm, "bias", None)
    value = centred * steep * weight + (0 if bias is None else bias.detach().double())
    # How far off mean and variance may be computed. Of n terms of size |x|: the mean of squares by gamma times the mean
    # square, the square of the mean by twice that; so 4 is enough for the one less the other, and for running means
    # (Welford), where the errors of the means before add up to less than that. About a mean that is off, the variance
    # is larger by the square of how much.
    size = x.value.abs() + x.radius
    square = size.square().mean(-1, keepdim=True)
    mean_off = gamma(n + 4, unit) * size.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else 0 * x.radius
    variance_off = 4 * gamma(n + 8, unit) * square + mean_off.square() + TINY
    # What an error of x becomes: a norm is nowhere steeper than 1 / sigma, and sigma is at least that of x, less the
    # error's share. The variance as computed must stay positive.
    sigma = (variance.sqrt() - x.radius / n**0.5).clamp(min=0)
    smallest = sigma.square() + eps - variance_off
    if not bool((smallest > 0).all()):
        raise OverflowError("a norm of rows whose mean is far larger than what they differ from it by")
    steepest = smallest.rsqrt()
    grown = weight.abs().max() * steepest * x.radius
    # What its own roundings add: of the mean, of 1 / sigma, and of x less mean times that, in whichever order.
    steep_off = variance_off * steepest**3 / 2 + gamma(6, unit) * steepest
    own = weight.abs() * (
        mean_off * steepest
        + (centred.abs() + x.radius + mean_off) * steep_off
        + gamma(8, unit) * (size + mean.abs() + x.radius + mean_off) * (steepest + steep_off)
    )
    own = own + gamma(8, unit) * (value.abs() + grown + own)
    return _rounded(value, grown + length(own), unit)


def feed_forward(ffn: FeedForward | GatedFeedForward, x: Bounded) -> Bounded:
    """With the activation relu; dropout is for training."""
    if ffn.act_fn != "relu":
        raise ValueError(f"act_fn must be 'relu' for bounds; got {ffn.act_fn!r}")
    up = product(x, ffn.up.weight, ffn.up.bias)
    if isinstance(ffn, FeedForward):
        return product(relu(up), ffn.down.weight, ffn.down.bias)
    gate, value = (Bounded(each, up.radius, x.unit) for each in up.value.chunk(2, -1))
    return product(multiply(relu(gate), value), ffn.down.weight, ffn.down.bias)


def convolve(conv: BasicConv | GatedConv, previous: Bounded, now: Bounded) -> Bounded:
    """Of the input one step before and the input now."""
    if isinstance(conv, BasicConv):
        both = torch.cat((previous.value, now.value), -1)
        radius = (previous.radius.square() + now.radius.square()).sqrt() * SLACK
        return product(Bounded(both, radius, now.unit), conv.weight, conv.bias)
    share = torch.sigmoid(conv.g.detach().double())
    value = share * previous.value + (1 - share) * now.value
    # however it is written, share u' + (1 - share) u or u + share (u' - u), the terms are no larger than these
    terms = length(previous.value.abs() + 2 * now.value.abs()) + previous.radius + 2 * now.radius
    radius = share.max() * previous.radius + (1 - share).max() * now.radius
    return _rounded(value, radius + gamma(2 * SIGMOID_ULPS + 6, now.unit) * terms, now.unit)


def drive(layer: MinMaxLayer, u: Bounded, previous: Bounded) -> tuple[Tensor, Tensor]:
    """`project`'s z of a layer, and how far off each entry may be.

    u: (N, d_model), the layer's input. previous: `norm_conv` of the input one step before, or 0.
    """
    projection, width = layer.neuron.projection, u.value.shape[-1]
    mixed = add(u, convolve(layer.conv, previous, normalise(layer.norm_conv, u)), 2 * width + 1)
    hidden = layer.ffn.down.weight.shape[1]
    inside = add(mixed, feed_forward(layer.ffn, normalise(layer.norm_ffn, mixed)), hidden + 1)
    return product_by_entry(normalise(layer.norm_neuron, inside), projection.weight, projection.bias)


def respond(layer: MinMaxLayer, u: Bounded, z: tuple[Tensor, Tensor], x: Tensor) -> Bounded:
    """The layer's output, from its input, `drive`'s z and the states x (N, d_state) after the step."""
    neuron = layer.neuron
    states = _rounded(x.double(), gamma(1, u.unit) * length(x.double()), u.unit)  # of a grid, as 1/3 is rounded
    if neuron.output_gate:
        gate, radius = (each[..., -neuron.d_state :] for each in z)
        states = multiply(states, sigmoid(Bounded(gate, length(radius), u.unit)))
    return add(u, product(states, neuron.output.weight, neuron.output.bias), neuron.d_state + 1)
