"""Thresholds, and which of several formulas, from labelled traces: gradient descent through the robustness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from latchwork.temporal.formula import COMPARISONS, Formula
from latchwork.temporal.offline import subformulas
from latchwork.temporal.parameters import named_parameters
from latchwork.temporal.traces import Signals

SHARPER = 0.03  # the width of the loss at the end, of that at the start: towards counting mistakes
FUTURE = ("next", "s_next", "eventually", "always", "until")


@dataclass(frozen=True)
class Fit:
    """A formula with its thresholds learnt. accuracy: the share of traces told right; loss: the smaller the clearer."""

    formula: Formula
    thresholds: dict[str, float]
    accuracy: float
    loss: float


def fit(
    formulas: Formula | Sequence[Formula],
    signals: Signals,
    labels: Tensor | Sequence[bool],
    *,
    names: Sequence[str] | None = None,
    steps: int = 200,
    learning_rate: float = 0.05,
    starts: int = 5,
    temperature: float | None = None,
) -> Fit:
    """The formula that tells the traces labelled true from the others best, its thresholds `$name` learnt.

    signals: of all traces, (B, T). labels: (B,), whether a trace shall satisfy the formula, at its first step if it has
    future operators, else at its last. The loss is the logistic one of the robustness, sharper step by step. Descent
    starts from `starts` places: quantiles of the terms that the thresholds are compared with, the same quantile for
    all. temperature: of the smooth semantics, for the descent alone. The thresholds of every formula given are left at
    the best found.
    """
    candidates = [formulas] if isinstance(formulas, Formula) else list(formulas)
    if not candidates:
        raise ValueError("formulas must hold at least one formula")
    wanted = torch.as_tensor(labels)
    if wanted.dim() != 1 or wanted.dtype != torch.bool:
        raise ValueError(f"labels must be booleans (B,); got {wanted.dtype} {tuple(wanted.shape)}")
    if bool(wanted.all()) or not bool(wanted.any()):
        raise ValueError("labels must hold both true and false")
    found = [_fit(each, signals, wanted, names, steps, learning_rate, starts, temperature) for each in candidates]
    return max(found, key=lambda each: (each.accuracy, -each.loss))


def _fit(
    formula: Formula,
    signals: Signals,
    labels: Tensor,
    names: Sequence[str] | None,
    steps: int,
    learning_rate: float,
    starts: int,
    temperature: float | None,
) -> Fit:
    thresholds = named_parameters(formula)
    place = 0 if any(node.operator in FUTURE for node in formula.nodes()) else -1
    signs = torch.where(labels, 1.0, -1.0)
    terms = _compared(formula, signals, names)
    best: tuple[float, float, dict[str, float]] | None = None
    for start in range(starts):
        share = (start + 1) / (starts + 1)
        scales = {}
        with torch.no_grad():
            for name, threshold in thresholds.items():
                values = terms.get(name, torch.tensor([-1.0, 1.0]))
                threshold.fill_(values.double().quantile(share))
                scales[name] = float(values.double().std()) or 1.0
        optimizer = torch.optim.Adam(
            [{"params": [each], "lr": learning_rate * scales[name]} for name, each in thresholds.items()]
            or [torch.zeros(1, requires_grad=True)]
        )
        for step in range(steps + 1):
            robust = formula(signals, names, temperature=temperature if step < steps else None)[:, place]
            if step == 0:
                first = float(robust.detach().abs().median()) or 1.0
            scale = first * SHARPER ** (step / max(1, steps))
            loss = torch.nn.functional.softplus(-signs * robust / scale).mean()
            if step < steps and loss.requires_grad:
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        accuracy = float(((robust > 0) == labels).double().mean())
        now = {name: float(each.detach()) for name, each in thresholds.items()}
        if best is None or (accuracy, -loss.item()) > (best[0], -best[1]):
            best = accuracy, loss.item(), now
    assert best is not None
    with torch.no_grad():
        for name, value in best[2].items():
            thresholds[name].fill_(value)
    return Fit(formula, best[2], best[0], best[1])


def _compared(formula: Formula, signals: Signals, names: Sequence[str] | None) -> dict[str, Tensor]:
    """For each threshold that stands alone on one side of a comparison: the values on the other, at most 10,000."""
    with torch.no_grad():
        values = subformulas(formula, signals, names)
    found: dict[str, Tensor] = {}
    for node in formula.nodes():
        if node.operator in COMPARISONS:
            for mine, other in (node.children, node.children[::-1]):
                if mine.operator == "parameter":
                    numbers = values[other].flatten()
                    found[str(mine.value)] = numbers[:: max(1, len(numbers) // 10_000)]
    return found
