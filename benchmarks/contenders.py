"""Everything that is compared: our backends, the paper's own package, plain torch, other recurrences.

A scan takes its coefficients as given. A layer computes them from its input by a matrix product, as nn.LSTM
cannot be told not to; it is compared with our scan behind such a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log2

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from measure import Shape


class Inputs:
    """Leaves r and s (B, T, D), x0 (B, D) and a dense gradient of the output, shared by all contenders."""

    def __init__(self, shape: Shape) -> None:
        generator = torch.Generator().manual_seed(0)
        B, _, D = self.shape = shape
        self.r = torch.randn(shape, generator=generator).requires_grad_()
        self.s = torch.randn(shape, generator=generator).requires_grad_()
        self.x0 = torch.zeros(B, D)
        self.grad = torch.randn(shape, generator=generator)


@dataclass(frozen=True)
class Problem:
    """A contender on given inputs: `run` makes the output, `leaves` are the tensors that get gradients."""

    run: Callable[[], Tensor]
    leaves: Sequence[Tensor]
    grad: Tensor

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.run()

    def forward_backward(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None
        torch.autograd.backward(self.run(), self.grad)


@dataclass(frozen=True)
class Contender:
    """How to set up one contender, and what is known of it before it runs."""

    prepare: Callable[[Inputs], Problem]
    baseline: str  # the contender of ours it is like
    memory: Callable[[int], float]  # of forward and backward at length T, in tensors of the size of r
    requirement: str = ""  # what pip must install
    largest: float = inf  # B * T * D beyond which it is not tried
    why_not_larger: str = ""
    compiles: bool = False


def ours(backend: str) -> Callable[[Inputs], Problem]:
    def prepare(inputs: Inputs) -> Problem:
        from latchwork import minmax_scan

        r, s, x0 = inputs.r, inputs.s, inputs.x0
        return Problem(lambda: minmax_scan(r, s, x0, backend=backend), (r, s), inputs.grad)

    return prepare


def our_layer(inputs: Inputs) -> Problem:
    from latchwork import minmax_scan

    D = inputs.shape[2]
    projection = nn.Linear(D, 2 * D)

    def run() -> Tensor:
        r, s = projection(inputs.r).chunk(2, dim=-1)
        return minmax_scan(r, s, inputs.x0, backend="cpu")

    return Problem(run, (inputs.r, *projection.parameters()), inputs.grad)


def minmaxrnc(inputs: Inputs) -> Problem:
    """The paper's package. Its scan returns x0 too, at index 0; its own neuron slices that off, as here."""
    from minmaxrnc.minmax_scan import all_states

    r, s, x0 = inputs.r, inputs.s, inputs.x0
    return Problem(lambda: all_states(r, s, x0)[:, 1:], (r, s), inputs.grad)


def unbind_loop(r: Tensor, s: Tensor, x0: Tensor) -> Tensor:
    x, states = x0, []
    for cap, write in zip(r.unbind(1), s.unbind(1), strict=True):
        x = torch.maximum(torch.minimum(cap, x), write)
        states.append(x)
    return torch.stack(states, 1)


def hillis_steele(r: Tensor, s: Tensor, x0: Tensor) -> Tensor:
    """Prefix scan: after k rounds (r_t, s_t) composes the last 2^k steps. Padding instead compiles worse."""
    stride = 1
    while stride < r.shape[1]:
        now, then = slice(stride, None), slice(None, -stride)
        both = torch.maximum(torch.minimum(r[:, now], s[:, then]), s[:, now])
        s = torch.cat((s[:, :stride], both), 1)
        r = torch.cat((r[:, :stride], torch.minimum(r[:, now], r[:, then])), 1)
        stride *= 2
    return torch.maximum(torch.minimum(r, x0[:, None]), s)


def loop(inputs: Inputs) -> Problem:
    return Problem(lambda: unbind_loop(inputs.r, inputs.s, inputs.x0), (inputs.r, inputs.s), inputs.grad)


def compiled(inputs: Inputs) -> Problem:
    torch._dynamo.reset()
    scan = torch.compile(hillis_steele, dynamic=False)
    return Problem(lambda: scan(inputs.r, inputs.s, inputs.x0), (inputs.r, inputs.s), inputs.grad)


def mambapy(inputs: Inputs) -> Problem:
    """H_t = A_t H_{t-1} + X_t on (B, T, D, 1); A is so near to 1 that no product becomes a slow denormal."""
    from mambapy.pscan import pscan

    A = torch.exp(-torch.rand(inputs.shape) / inputs.shape[1]).unsqueeze(-1).requires_grad_()
    X = inputs.s.detach().unsqueeze(-1).requires_grad_()
    return Problem(lambda: pscan(A, X), (A, X), inputs.grad.unsqueeze(-1))


def mingru_scan(inputs: Inputs) -> Problem:
    from minGRU_pytorch.minGRU import heinsen_associative_scan_log

    coefficients = (-F.softplus(inputs.r.detach())).requires_grad_()
    values = inputs.s.detach().clone().requires_grad_()
    leaves = (coefficients, values)
    return Problem(lambda: heinsen_associative_scan_log(coefficients, values), leaves, inputs.grad)


def mingru_layer(inputs: Inputs) -> Problem:
    from minGRU_pytorch import minGRU

    layer = minGRU(inputs.shape[2])
    return Problem(lambda: layer(inputs.r), (inputs.r, *layer.parameters()), inputs.grad)


def recurrent(kind: type[nn.LSTM] | type[nn.GRU]) -> Callable[[Inputs], Problem]:
    def prepare(inputs: Inputs) -> Problem:
        D = inputs.shape[2]
        layer = kind(D, D, batch_first=True)
        return Problem(lambda: layer(inputs.r)[0], (inputs.r, *layer.parameters()), inputs.grad)

    return prepare


OURS, OUR_LAYER = "latchwork cpu", "latchwork cpu, with projections"
MINGRU = "minGRU-pytorch==0.2.1"

CONTENDERS = {
    OURS: Contender(ours("cpu"), OURS, memory=lambda T: 3),
    "latchwork torch": Contender(ours("torch"), OURS, memory=lambda T: 6),
    "latchwork reference": Contender(
        ours("reference"),
        OURS,
        memory=lambda T: 10,
        largest=2**21,
        why_not_larger="the definition, for small shapes only",
    ),
    "minmaxrnc": Contender(minmaxrnc, OURS, memory=lambda T: 7 + 3 * log2(T), requirement="minmaxrnc==0.3.0"),
    "torch loop": Contender(loop, OURS, memory=lambda T: 10),
    "compiled Hillis-Steele": Contender(
        compiled,
        OURS,
        memory=lambda T: 7 + 3 * log2(T),
        largest=2**21,
        why_not_larger="compiling takes up to a minute a shape",
        compiles=True,
    ),
    "mambapy": Contender(mambapy, OURS, memory=lambda T: 10, requirement="mambapy==1.2.0"),
    "minGRU scan": Contender(mingru_scan, OURS, memory=lambda T: 12, requirement=MINGRU),
    OUR_LAYER: Contender(our_layer, OUR_LAYER, memory=lambda T: 8),
    "nn.LSTM": Contender(recurrent(nn.LSTM), OUR_LAYER, memory=lambda T: 20),
    "nn.GRU": Contender(recurrent(nn.GRU), OUR_LAYER, memory=lambda T: 20),
    "minGRU layer": Contender(mingru_layer, OUR_LAYER, memory=lambda T: 24, requirement=MINGRU),
}
