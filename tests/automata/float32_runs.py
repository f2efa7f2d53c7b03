"""What float32 may come to: the pieces of a layer, with sums in a chosen order, one rounding at a time.

All is computed in float64 and rounded to float32 after each operation. For sums, products, quotients and square roots
of float32 numbers that is what float32 arithmetic gives, since 53 bits are more than twice 24 and two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from torch import nn

from latchwork.modules.conv import GatedConv
from latchwork.modules.feedforward import FeedForward
from latchwork.modules.layer import MinMaxLayer

Array = numpy.ndarray
ORDERS = ("given", "reversed", "rising", "falling", "pairwise", "shuffled")
VARIANCES = ("two passes", "squares", "running")
SMALLEST = 2.0**-126


def numbers(tensor) -> Array:
    return tensor.detach().double().numpy()


@dataclass(frozen=True)
class Run:
    """One way to compute. fused: products are added unrounded. flush: what is below 2^-126 becomes zero.

    together: what is added to a product is one term more of its sum. variance: how a norm computes it.
    """

    order: str = "given"
    fused: bool = False
    flush: bool = False
    together: bool = False
    variance: str = "two passes"
    seed: int = 0

    def round(self, a: Array) -> Array:
        rounded = numpy.asarray(a).astype(numpy.float32).astype(numpy.float64)
        return numpy.where(numpy.abs(rounded) < SMALLEST, 0.0, rounded) if self.flush else rounded

    def sum(self, terms: Array) -> Array:
        """Of the last dimension; the terms may be products that are not rounded."""
        if not self.fused:
            terms = self.round(terms)
        if self.order == "reversed":
            terms = terms[..., ::-1]
        elif self.order in ("rising", "falling"):
            places = numpy.argsort(numpy.abs(terms) * (1 if self.order == "rising" else -1), axis=-1)
            terms = numpy.take_along_axis(terms, places, -1)
        elif self.order == "shuffled":
            terms = terms[..., numpy.random.default_rng(self.seed).permutation(terms.shape[-1])]
        if self.order == "pairwise":
            terms = self.round(terms)
            while terms.shape[-1] > 1:
                odd = terms[..., -1:] if terms.shape[-1] % 2 else terms[..., :0]
                even = terms.shape[-1] // 2 * 2
                terms = numpy.concatenate([self.round(terms[..., 0:even:2] + terms[..., 1:even:2]), odd], -1)
            return terms[..., 0]
        total = self.round(terms[..., 0])
        for place in range(1, terms.shape[-1]):
            total = self.round(total + terms[..., place])
        return total

    def product(self, x: Array, weight, bias=None, plus: Array | None = None) -> Array:
        """weight x + bias + plus, for x (rows, inputs) and plus (rows, outputs)."""
        w = self.round(numbers(weight)) if self.flush else numbers(weight)
        x = self.round(x)
        parts = [x[:, None, :] * w]
        if bias is not None:
            parts.append(numpy.broadcast_to(numbers(bias), parts[0].shape[:-1])[..., None])
        if plus is not None and self.together:
            parts.append(plus[..., None])
        found = self.sum(numpy.concatenate(parts, -1))
        return found if plus is None or self.together else self.round(found + plus)

    def sigmoid(self, x: Array) -> Array:
        with numpy.errstate(over="ignore"):
            return self.round(1 / self.round(1 + self.round(numpy.exp(-x))))

    def norm(self, norm: nn.Module, x: Array) -> Array:
        if isinstance(norm, nn.Identity):
            return x
        n, eps = x.shape[-1], 2.0**-23 if norm.eps is None else norm.eps
        centre = isinstance(norm, nn.LayerNorm)
        mean = self.round(self.sum(x) / n) if centre else numpy.zeros(len(x))
        if centre and self.variance == "squares":
            variance = self.round(self.round(self.sum(x * x) / n) - self.round(mean * mean))
        elif centre and self.variance == "running":
            mean, squares = numpy.zeros(len(x)), numpy.zeros(len(x))
            for k in range(n):
                away = self.round(x[:, k] - mean)
                mean = self.round(mean + self.round(away / (k + 1)))
                squares = self.round(squares + self.round(away * self.round(x[:, k] - mean)))
            variance = self.round(squares / n)
        else:
            away = self.round(x - mean[:, None])
            variance = self.round(self.sum(away * away) / n)
        scale = self.round(1 / self.round(numpy.sqrt(self.round(variance + self.round(numpy.array(eps))))))[:, None]
        if self.together:  # x scale - mean scale
            hat = self.round(self.round(x * scale) - self.round(mean[:, None] * scale))
        else:
            hat = self.round(self.round(x - mean[:, None]) * scale)
        y = hat if norm.weight is None else self.round(hat * numbers(norm.weight))
        bias = getattr(norm, "bias", None)
        return y if bias is None else self.round(y + numbers(bias))

    def convolve(self, conv, previous: Array, now: Array, plus: Array | None = None) -> Array:
        if not isinstance(conv, GatedConv):
            return self.product(numpy.concatenate([previous, now], -1), conv.weight, conv.bias, plus)
        share, away = self.sigmoid(numbers(conv.g)), self.round(previous - now)
        if self.order == "given":
            found = self.round(now + self.round(share * away))
        elif self.order == "reversed":  # torch.lerp's other half
            found = self.round(previous - self.round(away * self.round(1 - share)))
        else:
            found = self.round(self.round(share * previous) + self.round(self.round(1 - share) * now))
        return found if plus is None else self.round(found + plus)

    def feed_forward(self, ffn, x: Array, plus: Array) -> Array:
        up = self.product(x, ffn.up.weight, ffn.up.bias)
        if isinstance(ffn, FeedForward):
            return self.product(numpy.maximum(up, 0), ffn.down.weight, ffn.down.bias, plus)
        gate, value = numpy.split(up, 2, -1)
        return self.product(self.round(numpy.maximum(gate, 0) * value), ffn.down.weight, ffn.down.bias, plus)

    def drive(self, layer: MinMaxLayer, u: Array, before: Array) -> Array:
        """`project`'s z of a layer, from its input and the one before."""
        mixed = self.convolve(layer.conv, self.norm(layer.norm_conv, before), self.norm(layer.norm_conv, u), u)
        inside = self.feed_forward(layer.ffn, self.norm(layer.norm_ffn, mixed), mixed)
        return self.product(self.norm(layer.norm_neuron, inside), *layer.neuron.projection.parameters())

    def respond(self, layer: MinMaxLayer, u: Array, z: Array, x: Array) -> Array:
        """The layer's output, from its input, z and the states after the step, which are rounded."""
        states = self.round(x)
        if layer.neuron.output_gate:
            states = self.round(states * self.sigmoid(z[:, -layer.neuron.d_state :]))
        return self.product(states, layer.neuron.output.weight, layer.neuron.output.bias, u)
