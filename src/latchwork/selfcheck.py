"""Every kernel against its definition, forward and gradients, on this machine, in a few seconds.

A case is a function that computes with the backend that `use_backend` names. It runs once by the definitions and once
by the backend in question.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from latchwork.baselines.kernel_cases import KERNELS
from latchwork.modules import BasicConv, GatedConv, GatedFeedForward, MinMaxLayer, MinMaxNeuron, State, fast_layer
from latchwork.ops import dispatch, minmax_scan, use_backend
from latchwork.ops.arguments import DTYPES
from latchwork.ops.choice import choose_rows
from latchwork.ops.cross_entropy import linear_best, linear_cross_entropy
from latchwork.ops.matvec import int8_linear, linear
from latchwork.ops.moves import selection_scan, transformation_scan
from latchwork.ops.reference import reference_scan
from latchwork.ops.temporal import latch, window


@dataclass(frozen=True)
class Report:
    """What was found about one operation of one backend.

    missing: why it cannot run here, or None. wrong: the names of the cases that differ from the definition.
    """

    operation: str
    backend: str
    device: str
    missing: str | None
    cases: int
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """compute: gives the values and then the gradients. exact: how many of them must agree bit for bit."""

    name: str
    compute: Callable[[], list[Tensor]]
    exact: int


def check_backends() -> list[Report]:
    """A report for each operation and each backend that has a kernel for it."""
    reports = []
    for operation, (table, cases) in OPERATIONS.items():
        for name, backend in dispatch.BACKENDS[table].items():
            device = torch.device("cuda" if name == "triton" and torch.cuda.is_available() else "cpu")
            missing, count, wrong = backend.unfit(torch.empty(0, device=device)), 0, []
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                for case in cases(device) if missing is None else ():
                    count += 1
                    if not _agrees(case, name):
                        wrong.append(case.name)
            reports.append(Report(operation, name, str(device), missing, count, tuple(wrong)))
    return reports


def _agrees(case: Case, backend: str) -> bool:
    with use_backend("reference"):
        expected = case.compute()
    try:
        with use_backend(backend):
            found = case.compute()
    except (RuntimeError, ValueError):
        return False
    return all(
        (_same if number < case.exact else _close)(*pair)
        for number, pair in enumerate(zip(expected, found, strict=True))
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(12345.0), b.nan_to_num(12345.0))


def _close(a: Tensor, b: Tensor) -> bool:
    """To rounding, which grows with the largest of the numbers that were added up."""
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-1}[a.dtype]
    largest = float(a[a.isfinite()].abs().amax()) if a.isfinite().any() else 0.0
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, largest), equal_nan=True)


def _differentiate(function: Callable[..., Tensor | tuple[Tensor, ...]], *leaves: Tensor) -> list[Tensor]:
    """What function gives for the leaves, and the gradients of these."""
    leaves = tuple(each.detach().requires_grad_() for each in leaves)
    found = function(*leaves)
    ys = (found,) if isinstance(found, Tensor) else found
    weights = [torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(y) for y in ys]
    return [*(y.detach() for y in ys), *torch.autograd.grad(ys, leaves, weights)]


def _scans(device: torch.device, sizes: tuple[tuple[int, ...], ...]) -> Iterator[Case]:
    """All dtypes, continuous values and ties, with and without reset, odd sizes, inf and NaN."""

    def compute(r: Tensor, s: Tensor, x0: Tensor, reset: Tensor | None) -> list[Tensor]:
        return _differentiate(partial(minmax_scan, reset=reset), r, s, x0)

    kinds = ("continuous", "ties", "extreme")
    for dtype, (degree, batch, time, width), kind, packed in itertools.product(DTYPES, sizes, kinds, (False, True)):
        shape = (batch, time, width) if degree == 1 else (batch, time, width, degree)
        r, s = torch.randn(shape if degree == 1 else (*shape, degree)), torch.randn(shape)
        x0 = torch.randn(batch, *shape[2:])
        if kind == "ties":
            r, s, x0 = r.round(), s.round(), x0.round()
        if kind == "extreme":
            r[:, 1], s[:, 2], r[0, -1] = torch.inf, -torch.inf, torch.nan
        reset = (torch.rand(batch, time) < 0.2).to(device) if packed else None
        r, s, x0 = (each.to(device, dtype) for each in (r, s, x0))
        name = f"degree {degree}, {dtype}, {kind}, {'reset' if packed else 'no reset'}"
        yield Case(name, partial(compute, r, s, x0, reset), exact=4 if degree == 1 and device.type == "cpu" else 1)


def _compositions(device: torch.device) -> Iterator[Case]:
    def compute(r: Tensor, s: Tensor, x: Tensor) -> list[Tensor]:
        if (name := dispatch.asked_for()) == "reference":
            return [reference_scan(r, s, x)[:, -1]]
        whole_r, whole_s = dispatch.BACKENDS["scan"][name].compose(r, s, None, None)
        return [reference_scan(whole_r.unsqueeze(1), whole_s.unsqueeze(1), x)[:, 0]]

    for degree, dtype in itertools.product((1, 3), DTYPES):
        shape = (2, 19, 9) if degree == 1 else (2, 19, 9, degree)
        r, s = torch.randn(shape if degree == 1 else (*shape, degree)), torch.randn(shape)
        tensors = (each.to(device, dtype) for each in (r, s, torch.randn(2, *shape[2:])))
        yield Case(f"degree {degree}, {dtype}", partial(compute, *tensors), exact=1)


def _moves(device: torch.device, sends: bool) -> Iterator[Case]:
    def compute(weights: Tensor, x0: Tensor, choice: Tensor, reset: Tensor | None, own: Tensor | None) -> list[Tensor]:
        def run(weights: Tensor, x0: Tensor) -> Tensor:
            if sends:
                return transformation_scan(weights, choice, x0, reset=reset)
            return selection_scan(weights, choice, x0, s=own, reset=reset)

        return _differentiate(run, weights, x0)

    for dtype, packed, more in itertools.product(DTYPES, (False, True), (False,) if sends else (False, True)):
        weights = torch.randn(3, 11, 4, 5, 5 + more).softmax(-1).to(device, dtype)
        x0, own = torch.rand(2, 4, 5).to(device, dtype)
        reset = (torch.rand(3, 11) < 0.2).to(device) if packed else None
        name = f"{dtype}, {'reset' if packed else 'no reset'}{', own levels' if more else ''}"
        tensors = weights, x0, weights.argmax(-1), reset, own if more else None
        yield Case(name, partial(compute, *tensors), exact=1)


def _choices(device: torch.device) -> Iterator[Case]:
    def compute(logits: Tensor, own: Tensor | None) -> list[Tensor]:
        choice = choose_rows(logits, own)[1]
        return [choice, *_differentiate(lambda a: choose_rows(a, own, temperature=2.0)[0], logits)]

    for dtype, more in itertools.product(DTYPES, (False, True)):
        logits, own = torch.randn(3, 7, 5, 4).to(device, dtype), torch.randn(3, 7, 5).to(device, dtype)
        yield Case(f"{dtype}, {'own' if more else 'no own'}", partial(compute, logits, own if more else None), exact=1)


def _layers(device: torch.device) -> Iterator[tuple[str, MinMaxLayer, Tensor, State, Tensor]]:
    for norm, gated, activation in itertools.product(("layernorm", "rmsnorm"), (False, True), ("relu^2", "swish")):
        conv, ffn = (GatedConv if gated else BasicConv)(24), GatedFeedForward(24, act_fn=activation, dropout=0.0)
        layer = MinMaxLayer(conv=conv, ffn=ffn, neuron=MinMaxNeuron(24, 19, output_gate=gated), norm_type=norm)
        u, state = torch.randn(3, 21, 24), State(torch.randn(3, 24), torch.randn(3, 19))
        reset = torch.rand(3, 21) < 0.2
        name = f"{norm}, {activation}, {'gated' if gated else 'not gated'}"
        yield name, layer.to(device), u.to(device), state.to(device), reset.to(device)


def _wholes(device: torch.device) -> Iterator[Case]:
    def compute(layer: MinMaxLayer, u: Tensor, state: State, reset: Tensor) -> list[Tensor]:
        after = layer(u, state, reset=reset)[1]
        return [after.x.detach(), after.conv.detach(), *_differentiate(lambda u: layer(u, state, reset=reset)[0], u)]

    for name, layer, u, state, reset in _layers(device):
        yield Case(name, partial(compute, layer, u, state, reset), exact=0)


def _drives(device: torch.device) -> Iterator[Case]:
    def compute(layer: MinMaxLayer, u: Tensor, first: Tensor) -> list[Tensor]:
        parts = (layer.conv, layer.ffn, layer.neuron.projection)
        weights = [each for part in parts for each in part.parameters()]
        loss = fast_layer.drive(layer, u, first).square().mean()
        found = _differentiate(partial(fast_layer.drive, layer), u, first)
        return [*found, *torch.autograd.grad(loss, weights)]

    for name, layer, u, state, _ in _layers(device):
        yield Case(name, partial(compute, layer, u, state.conv), exact=0)


def _responses(device: torch.device) -> Iterator[Case]:
    def compute(layer: MinMaxLayer, u: Tensor, z: Tensor, state: State, reset: Tensor) -> list[Tensor]:
        last = layer(u, state, reset=reset, drives=z)[1].x.detach()
        return [last, *_differentiate(lambda u, z: layer(u, state, reset=reset, drives=z)[0], u, z)]

    for name, layer, u, state, reset in _layers(device):
        z = torch.randn(*u.shape[:2], layer.neuron.projection.out_features).to(u)
        yield Case(name, partial(compute, layer, u, z, state, reset), exact=1)


def _losses(device: torch.device) -> Iterator[Case]:
    def compute(hidden: Tensor, weight: Tensor, targets: Tensor) -> list[Tensor]:
        best = [linear_best(hidden, weight), linear_best(hidden, weight, "layernorm", 1e-5, weight[0], weight[1])]
        return [*best, *_differentiate(lambda h, w: linear_cross_entropy(h, w, targets), hidden, weight)]

    for dtype, (N, d, V) in itertools.product((torch.float32, torch.float64), ((97, 24, 33), (5, 90, 20))):
        hidden, weight = torch.randn(N, d).to(device, dtype), torch.randn(V, d).to(device, dtype)
        targets = torch.randint(V, (N,)).masked_fill(torch.rand(N) < 0.2, -100).to(device)
        yield Case(f"{dtype}, {N} rows, {V} classes", partial(compute, hidden, weight, targets), exact=2)


def _products(device: torch.device, quantised: bool) -> Iterator[Case]:
    def compute(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> list[Tensor]:
        if quantised:
            whole = (weight * 50).clamp(-127, 127).to(torch.int8)
            return _differentiate(lambda x: int8_linear(x, whole, scale, bias), x)
        return _differentiate(lambda x, weight: linear(x, weight, bias), x, weight)

    for vectors, (outputs, inputs), more in itertools.product((1, 3), ((130, 2100), (515, 512)), (False, True)):
        x, weight, scale, bias = (
            torch.randn(*shape).to(device) for shape in ((vectors, inputs), (outputs, inputs), (outputs, 1), (outputs,))
        )
        name = f"{outputs} x {inputs}, {vectors} vectors, {'bias' if more else 'no bias'}"
        yield Case(name, partial(compute, x, weight, scale / 50, bias if more else None), exact=0)


def _latches(device: torch.device) -> Iterator[Case]:
    def compute(r: Tensor, s: Tensor, step: int, width: int | None) -> list[Tensor]:
        return _differentiate(lambda r, s: latch(r, s, step, width), r, s)

    dtypes, widths = (torch.float32, torch.float64), (None, 2, 7, 50)
    for dtype, step, width, ties in itertools.product(dtypes, (1, -1), widths, (False, True)):
        rows = torch.randn(2, 3, 50).to(device, dtype)
        r, s = rows.round() if ties else rows
        name = f"{dtype}, step {step}, width {width}, {'ties' if ties else 'no ties'}"
        yield Case(name, partial(compute, r, s, step, width), exact=1 if width else 3)


def _windows(device: torch.device) -> Iterator[Case]:
    def compute(x: Tensor, low: int, high: int, minimum: bool) -> list[Tensor]:
        return _differentiate(lambda x: window(x, low, high, minimum=minimum), x)

    dtypes, bounds = (torch.float32, torch.float64), ((-3, 0), (0, 4), (-70, 2), (2, 7))
    for dtype, (low, high), minimum, ties in itertools.product(dtypes, bounds, (False, True), (False, True)):
        x = torch.randn(3, 50).to(device, dtype)
        name = f"{dtype}, {low} to {high}, {'minimum' if minimum else 'maximum'}{', ties' if ties else ''}"
        yield Case(name, partial(compute, x.round() if ties else x, low, high, minimum), exact=1)


def _baselines(device: torch.device) -> Iterator[Case]:
    for (kind, make), sizes in itertools.product(KERNELS.items(), ((2, 7, 5), (3, 40, 17))):
        run, given = make(*sizes)
        yield Case(f"{kind}, {sizes}", partial(_differentiate, run, *given), exact=0)


OPERATIONS: dict[str, tuple[str, Callable[[torch.device], Iterator[Case]]]] = {  # name: the table, and its cases
    "scan": ("scan", lambda device: _scans(device, ((1, 3, 37, 41),))),
    "scan of degree n": ("scan", lambda device: _scans(device, ((2, 2, 19, 9), (5, 3, 11, 8)))),
    "composition of steps": ("scan", _compositions),
    "selection": ("moves", lambda device: _moves(device, sends=False)),
    "transformation": ("moves", lambda device: _moves(device, sends=True)),
    "choice": ("choice", _choices),
    "layer": ("layer", _wholes),
    "layer before its recurrence": ("layer", _drives),
    "layer from its recurrence on": ("layer", _responses),
    "head and loss": ("cross_entropy", _losses),
    "matrix times vectors": ("matvec", lambda device: _products(device, quantised=False)),
    "int8 matrix times vectors": ("matvec", lambda device: _products(device, quantised=True)),
    "temporal latch": ("temporal", _latches),
    "temporal window": ("temporal", _windows),
    "baselines": ("layer", _baselines),  # their kernels run where a layer's does
}
