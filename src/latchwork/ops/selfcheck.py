"""Every backend against the definition, on the machine at hand, in a few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from latchwork.ops import dispatch
from latchwork.ops.scan import DTYPES, minmax_scan


@dataclass(frozen=True)
class Report:
    """What was found about one backend. `missing` is why it cannot run here; `wrong` lists the cases that differ."""

    backend: str
    device: str
    missing: str | None
    cases: int
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """One problem: its tensors, and the name that a report calls it by."""

    name: str
    r: Tensor
    s: Tensor
    x0: Tensor
    reset: Tensor | None
    grad: Tensor


def cases(device: torch.device) -> Iterator[Case]:
    """Degree one and n, all dtypes, continuous values and ties, with and without reset, odd sizes, inf and NaN."""
    generator = torch.Generator().manual_seed(0)
    for dtype in DTYPES:
        for degree, batch, time, width in ((1, 3, 37, 41), (2, 2, 19, 9), (5, 3, 11, 8)):
            for values in ("continuous", "ties", "extreme"):
                for packed in (False, True):
                    shape = (batch, time, width) if degree == 1 else (batch, time, width, degree)
                    r, s, grad = (
                        torch.randn(each, generator=generator)
                        for each in (shape if degree == 1 else (*shape, degree), shape, shape)
                    )
                    x0 = torch.randn(batch, *shape[2:], generator=generator)
                    if values == "ties":
                        r, s, x0 = r.round(), s.round(), x0.round()
                    if values == "extreme":
                        r[:, 1], s[:, 2], r[0, -1] = torch.inf, -torch.inf, torch.nan
                    reset = torch.rand(batch, time, generator=generator) < 0.2 if packed else None
                    name = f"degree {degree}, {dtype}, {values}, {'reset' if packed else 'no reset'}"
                    r, s, x0, grad = (each.to(device, dtype) for each in (r, s, x0, grad))
                    yield Case(name, r, s, x0, None if reset is None else reset.to(device), grad)


def check_backends() -> list[Report]:
    """Forward bit for bit; gradients bit for bit for degree one on a CPU, and otherwise to rounding."""
    reports = []
    for name, backend in dispatch.BACKENDS["scan"].items():
        device = torch.device("cuda" if name == "triton" and torch.cuda.is_available() else "cpu")
        wrong, missing, count = [], None, 0
        for case in cases(device):
            if missing := backend.unfit(case.r):
                break
            count += 1
            if not _agree(_run(case, "reference"), _run(case, name), exact=case.r.dim() == 3 and device.type == "cpu"):
                wrong.append(case.name)
        reports.append(Report(name, str(device), missing, count, tuple(wrong)))
    return reports


def _agree(expected: list[Tensor], found: list[Tensor], exact: bool) -> bool:
    pairs = list(zip(expected, found, strict=True))
    return _same(*pairs[0]) and all(_same(a, b) if exact else _close(a, b) for a, b in pairs[1:])


def _run(case: Case, backend: str) -> list[Tensor]:
    r, s, x0 = (each.clone().requires_grad_() for each in (case.r, case.s, case.x0))
    x = minmax_scan(r, s, x0, reset=case.reset, backend=backend)
    return [x.detach(), *torch.autograd.grad(x, (r, s, x0), case.grad)]


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(12345.0), b.nan_to_num(12345.0)) and torch.equal(a.isnan(), b.isnan())


def _close(a: Tensor, b: Tensor) -> bool:
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}[a.dtype]
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
