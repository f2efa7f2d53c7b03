"""What is run: the tasks with the units that learn them, and the models that are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.baselines.mamba import Mamba
from latchwork.baselines.recurrent import Recurrent
from latchwork.baselines.slstm import SLSTM
from latchwork.baselines.transformer import Transformer
from latchwork.learning.networks import one_hot_start
from latchwork.tasks import Task


@dataclass(frozen=True)
class Units:
    """Of our layer: how its units move their levels, how many levels each has, how many units; how many layers.

    start: "levels", one of its own at every place; "one_hot", one level at the first place.
    """

    form: str
    degree: int
    units: int = 16
    d_model: int = 128
    layers: int = 1
    start: str = "levels"


@dataclass(frozen=True)
class Problem:
    """A task at a training length, and our units for it.

    threshold: the accuracy at which words become longer. patience: steps at one length after which a training of ours
    is stuck, and begins anew.
    """

    task: str
    units: Units
    length: int = 40
    threshold: float = 0.6
    patience: int = 600

    @property
    def name(self) -> str:
        """The task, and its length where that is not 40."""
        return self.task if self.length == 40 else f"{self.task}, {self.length}"


# Parity with many units is a lottery, which frozen random permutations win: two units are evidence.
PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("word_problem(S5)", Units("selection", 5)),
        Problem("word_problem(A5)", Units("selection", 5)),
        Problem("word_problem(S3)", Units("selection", 3)),
        # 3 x 4 x 5: several units together, each found in some trial; trials are short, and words grow slowly in them
        Problem("cyclic(60)", Units("selection", 5), threshold=0.8, patience=200),
        Problem("transformations(3)", Units("transformation", 3)),
        Problem("parity", Units("transformation", 2, 2)),
        Problem("word_problem(S5, generators)", Units("selection", 5)),
        Problem("word_problem(S5, swaps)", Units("selection", 5)),
        Problem("word_problem(A4xZ5)", Units("selection", 5), threshold=0.8, patience=200),
        # Z2 as well as A5 is a part of a unit of degree 5; one of degree 7 for both at once was not learnt
        Problem("word_problem(A5xZ2)", Units("selection", 5), threshold=0.8, patience=300),
        # A unit with one level follows one of the six points, and five of them tell all 720 elements apart. Units that
        # move six levels at once learn short words by heart.
        Problem(
            "word_problem(S6, generators)",
            Units("transformation", 8, 32, start="one_hot"),
            threshold=0.9,
            patience=300,
        ),
        Problem("word_problem(D4)", Units("selection", 4)),
        Problem("cyclic(2)", Units("transformation", 2, 2)),
        Problem("cyclic(3)", Units("selection", 3)),
        Problem("cyclic(5)", Units("selection", 5)),
        Problem("cyclic(7)", Units("selection", 7)),
        Problem("cycle_navigation", Units("selection", 5)),
        # a cascade: the term that is being read in one layer, the sum in the next
        Problem("modular_arithmetic", Units("transformation", 5, layers=2), threshold=0.95, patience=1200),
        Problem("transformations(4, 8, 0)", Units("transformation", 4)),
        Problem("transformations(5, 10, 0)", Units("transformation", 5), threshold=0.9, patience=2000),
        Problem("transformations(8, 6, 0)", Units("transformation", 8)),
        Problem("last_step(parity)", Units("transformation", 2, 2)),
        Problem("last_step(word_problem(S3))", Units("selection", 3)),
        Problem("last_step(transformations(3))", Units("transformation", 3)),
        Problem("last_step(word_problem(A5))", Units("selection", 5)),
        Problem("word_problem(S3)", Units("selection", 3), 512),
        Problem("word_problem(A5)", Units("selection", 5), 128),
        Problem("word_problem(S5)", Units("selection", 5), 128),
        Problem("word_problem(S5)", Units("selection", 5), 512),
        Problem("transformations(3)", Units("transformation", 3), 512),
    )
}
OURS = "minmax"
RATE = 5e-3  # ours, the curriculum's own
RATES = (1e-3, 3e-3, 1e-2)  # tried for each of the others, with the first seed
LAYERS = 2  # of the others, as in the paper's tables; ours has one where `Units` does not say more
WINDOW = 2048  # of the Transformer, for constant memory

# How to make each of a vocabulary and a width, and what the width must be a multiple of.
BASELINES: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "lstm": (partial(Recurrent, kind=nn.LSTM), 1),
    "gru": (partial(Recurrent, kind=nn.GRU), 1),
    "slstm": (partial(SLSTM, dropout=0.0), 4),
    "mamba": (Mamba, 1),
    "transformer": (partial(Transformer, window=WINDOW), 8),
}
MODELS = (OURS, *BASELINES)


def make_ours(vocabulary: int, units: Units, **changes: Any) -> MinMaxRNC_LM:
    """The standard layer, or several, whose units move whole levels, as it learns best."""
    config = MinMaxRNCLMConfig.state_tracking(
        units.degree, units.units, reset_form=units.form, d_model=units.d_model, n_layers=units.layers, **changes
    )
    model = MinMaxRNC_LM(vocabulary, config)
    if units.start == "one_hot":
        one_hot_start(model)
    return model


def make_model(name: str, task: Task, units: Units) -> nn.Module:
    """A model with weights drawn anew: ours, or one of the others with about as many parameters as ours."""
    if name == OURS:
        return make_ours(task.vocabulary, units)
    if name not in BASELINES:
        raise ValueError(f"model must be one of {', '.join(MODELS)}; got {name!r}")
    make, multiple = BASELINES[name]
    return make(
        task.vocabulary,
        LAYERS,
        width=find_width(name, task.vocabulary, parameters(make_ours(task.vocabulary, units)), multiple),
    )


def find_width(name: str, vocabulary: int, wanted: int, multiple: int) -> int:
    """The width of which a model has about as many parameters as wanted: they grow with it."""
    make = BASELINES[name][0]

    def count(times: int) -> int:
        return parameters(make(vocabulary, LAYERS, width=times * multiple))

    low, high = 1, 2
    while count(high) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < wanted else (low, middle)
    return multiple * min((low, high), key=lambda times: abs(count(times) - wanted))


def parameters(model: nn.Module) -> int:
    """Trainable parameters, a shared one counted once."""
    return sum(each.numel() for each in model.parameters() if each.requires_grad)
