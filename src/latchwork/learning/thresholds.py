"""Thresholds, and which of several formulas, from labelled traces: gradient descent through the robustness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from latchwork.temporal.formula import COMPARISONS, Formula
from latchwork.temporal.offline import subformulas
from latchwork.temporal.parameters import named_parameters
from latchwork.temporal.traces import Signals
from latchwork.training.engine import Training
from latchwork.training.plan import Outcome, Plan, Step
from latchwork.training.train import run_plan

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
    for name, value in (("steps", steps), ("starts", starts)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    if bool(wanted.all()) or not bool(wanted.any()):
        raise ValueError("labels must hold both true and false")
    found = [_fit(each, signals, wanted, names, steps, learning_rate, starts, temperature) for each in candidates]
    return _best(found)


class Thresholds(Plan):
    """Gradient descent on the thresholds of one formula, from where they stand; `robustness` is (B,), one for a trace.

    signs: (B,), 1 for a trace that shall satisfy the formula, -1 for the others. scales: for each threshold its spread,
    to which its learning rate is in proportion.
    """

    name, clip, save_seconds = "thresholds", None, None

    def __init__(
        self,
        robustness: Callable[[float | None], Tensor],
        signs: Tensor,
        scales: Mapping[str, float],
        *,
        steps: int,
        learning_rate: float,
        temperature: float | None,
    ) -> None:
        self.robustness, self.signs, self.scales = robustness, signs, scales
        self.steps, self.learning_rate, self.temperature = steps, learning_rate, temperature
        self.width = float(robustness(temperature).detach().abs().median()) or 1.0

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam, a group for each threshold."""
        rates = {name: self.learning_rate * self.scales[name] for name, _ in model.named_parameters()}
        return torch.optim.Adam([{"params": [each], "lr": rates[name]} for name, each in model.named_parameters()])

    def set_optimizer(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        """The rates stay as they are."""
        return self.learning_rate

    def batches(self, step: int, rank: int, world: int) -> list[tuple[int, float]]:
        """All traces at once; a batch is the number of the step."""
        return [(step, 1.0)]

    def loss(self, network: nn.Module, batch: int) -> Outcome:
        """Sharper from step to step."""
        return Outcome(self.loss_of(self.robustness(self.temperature), batch))

    def loss_of(self, robust: Tensor, step: int) -> Tensor:
        """The mean logistic loss of the robustness at a step."""
        width = self.width * SHARPER ** (step / self.steps)
        return torch.nn.functional.softplus(-self.signs * robust / width).mean()

    def observe(self, training: Training, step: Step) -> None:
        """Stop after the last step."""
        self.stopped = "all steps" if step.number + 1 == self.steps else ""


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
    terms = {name: each.double() for name, each in _compared(formula, signals, names).items()}
    values = {name: terms.get(name, torch.tensor([-1.0, 1.0], dtype=torch.float64)) for name in thresholds}
    scales = {name: float(each.std()) or 1.0 for name, each in values.items()}

    def robustness(temperature: float | None) -> Tensor:
        return formula(signals, names, temperature=temperature)[:, place]

    def put(numbers: Mapping[str, float]) -> None:
        with torch.no_grad():
            for name, number in numbers.items():
                thresholds[name].fill_(number)

    found = []
    for start in range(starts):
        put({name: float(each.quantile((start + 1) / (starts + 1))) for name, each in values.items()})
        signs = torch.where(labels, 1.0, -1.0)
        plan = Thresholds(robustness, signs, scales, steps=steps, learning_rate=learning_rate, temperature=temperature)
        if thresholds:
            run_plan(plan, nn.ParameterDict(thresholds))
        with torch.no_grad():
            robust = robustness(None)
            accuracy, loss = float(((robust > 0) == labels).double().mean()), plan.loss_of(robust, steps).item()
        found.append(Fit(formula, {name: float(each.detach()) for name, each in thresholds.items()}, accuracy, loss))
    best = _best(found)
    put(best.thresholds)
    return best


def _best(found: Sequence[Fit]) -> Fit:
    return max(found, key=lambda each: (each.accuracy, -each.loss))


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
