"""LatchClassifier: a scikit-learn estimator for sequences of numbers or symbols, of any lengths."""

# scikit-learn has no annotations.
# mypy: disable-error-code="misc, no-untyped-call", disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress
from torch import Tensor, nn

from latchwork.extras import need
from latchwork.modules.latch import PERIODS, Latch
from latchwork.modules.sequences import at_step
from latchwork.seeds import generator
from latchwork.training import Outcome, Plan, run_plan
from latchwork.training.engine import Training
from latchwork.training.plan import Step

need("sklearn", "sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402


class LatchClassifier(ClassifierMixin, BaseEstimator):
    """A Latch and a linear map of its mean and its last output, trained with AdamW on the cross-entropy.

    X: one sequence a row: a list of arrays (T,) or (T, F), T as it comes; an array (rows, T) or (rows, T, F); or
    symbols, a list of strings or of lists of strings. symbols: True reads numbers as symbols too, False never reads
    symbols, None reads strings as symbols. Numbers are scaled by the mean and deviation of each feature in the
    training set. A symbol that was not in the training set is read as unknown.

    hidden_size, num_layers, bidirectional, clock, periods, dropout: as in Latch. epochs, batch_size, learning_rate,
    weight_decay: of the training; the rate falls linearly to 0. random_state: as in scikit-learn; an integer gives the
    same network each time, and torch's own generator is left as it was. verbose: show progress.

    After fit: classes_, model_ (a torch module), loss_curve_ (the mean loss of each epoch), n_iter_.

    >>> words = ["abab", "bbbb", "aab", "b", "ba", "bb"]
    >>> model = LatchClassifier(hidden_size=8, epochs=60, random_state=0).fit(words, ["a" in word for word in words])
    >>> model.predict(["bbbbb", "aaaa"]).tolist()
    [False, True]
    """

    def __init__(
        self,
        hidden_size: int = 40,
        num_layers: int = 2,
        *,
        bidirectional: bool = False,
        clock: bool = True,
        periods: Sequence[int] = PERIODS,
        dropout: float = 0.0,
        epochs: int = 30,
        batch_size: int = 32,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.01,
        symbols: bool | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_size, self.num_layers, self.bidirectional = hidden_size, num_layers, bidirectional
        self.clock, self.periods, self.dropout = clock, periods, dropout
        self.epochs, self.batch_size = epochs, batch_size
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.symbols, self.random_state, self.verbose = symbols, random_state, verbose

    def fit(self, X: Any, y: Any) -> LatchClassifier:
        """Train on the sequences X and their classes y."""
        for name in ("epochs", "batch_size"):
            if not isinstance(value := getattr(self, name), (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1; got {value!r}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}")
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y must be one class for each sequence; got {y.shape}")
        check_classification_targets(y)
        self.classes_, targets = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes; got {self.classes_.tolist()}")
        rows = self._read(X, fitting=True)
        if len(rows) != len(y):
            raise ValueError(f"X and y must have one row for each sequence; got {len(rows)} and {len(y)}")
        random = check_random_state(self.random_state)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.randint(2**31 - 1)))
            self.model_ = _Reader(self, len(self.classes_))
            self._train(rows, torch.from_numpy(targets), random)
        self.model_.eval()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of each class, (rows, classes), in the order of classes_."""
        check_is_fitted(self, "model_")
        rows, found = self._read(X, fitting=False), []
        with torch.no_grad():
            for start in range(0, len(rows), 256):
                found.append(self.model_(rows[start : start + 256]).softmax(-1).numpy())
        return np.concatenate(found)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sequence."""
        check_is_fitted(self, "model_")
        best: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(-1)]
        return best

    def _train(self, rows: list[Tensor], targets: Tensor, random: np.random.RandomState) -> None:
        plan = _Fit(self, rows, targets, int(random.randint(2**31 - 1)))
        with Progress(disable=not self.verbose) as progress:
            bar = progress.add_task("training", total=self.epochs * plan.steps)
            run_plan(plan, self.model_, watch=lambda found: progress.update(bar, completed=found.step))
        self.loss_curve_ = plan.curve
        self.n_iter_ = self.epochs

    def _read(self, X: Any, fitting: bool) -> list[Tensor]:
        """Each sequence as a tensor: numbers (T, F), scaled, or the numbers (T,) of its symbols, 0 for unknown."""
        if isinstance(X, (str, bytes)) or not hasattr(X, "__len__"):
            raise ValueError(f"X must be a list or an array of sequences; got {X!r:.80}")
        X = X.to_numpy() if hasattr(X, "to_numpy") else X
        if not len(X):
            raise ValueError("X must hold at least one sequence; it is empty")
        for number, row in enumerate(X):
            if not hasattr(row, "__len__") or not len(row):
                raise ValueError(f"X[{number}] must be a sequence of at least one step; got {row!r:.80}")
        if fitting:
            text = isinstance(X[0], str) or isinstance(X[0][0], str)
            self.reads_symbols_ = bool(text if self.symbols is None else self.symbols)
        return self._read_symbols(X, fitting) if self.reads_symbols_ else self._read_numbers(X, fitting)

    def _read_symbols(self, X: Any, fitting: bool) -> list[Tensor]:
        rows = [row.tolist() if isinstance(row, np.ndarray) else list(row) for row in X]
        try:
            if fitting:
                known = dict.fromkeys(symbol for row in rows for symbol in row)
                self.symbols_ = {symbol: number for number, symbol in enumerate(known, 1)}
            return [torch.tensor([self.symbols_.get(symbol, 0) for symbol in row]) for row in rows]
        except TypeError as error:
            raise ValueError(f"X must be made of symbols that can be told apart, such as strings: {error}") from error

    def _read_numbers(self, X: Any, fitting: bool) -> list[Tensor]:
        rows: list[NDArray[np.float64]] = []
        features: int | None = None if fitting else self.n_features_
        for number, row in enumerate(X):
            try:
                array = np.asarray(row, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"X[{number}] must be numbers (T,) or (T, F); got {row!r:.80}") from error
            array = array[:, None] if array.ndim == 1 else array
            if array.ndim != 2 or (features is not None and array.shape[1] != features):
                wanted = "(T, F)" if features is None else f"(T, F) with F = {features}"
                raise ValueError(f"X[{number}] must be {wanted}; got {array.shape}")
            features = array.shape[1]
            if not np.isfinite(array).all():
                raise ValueError(f"X[{number}] must hold finite numbers only; it has a NaN or an infinity")
            rows.append(array)
        if fitting:
            whole = np.concatenate(rows)
            self.n_features_: int = whole.shape[1]
            self.mean_, self.scale_ = whole.mean(0), whole.std(0)
            self.scale_[self.scale_ == 0] = 1.0
        return [torch.from_numpy((row - self.mean_) / self.scale_).float() for row in rows]


class _Reader(nn.Module):
    """Sequences to logits."""

    def __init__(self, options: LatchClassifier, classes: int) -> None:
        super().__init__()
        width, layers = (
            index(options.hidden_size),
            index(options.num_layers),
        )  # a grid of numpy's has integers of its own
        names = ("bidirectional", "clock", "periods", "dropout")
        self.embedding = nn.Embedding(len(options.symbols_) + 1, width, 0) if options.reads_symbols_ else None
        features = width if options.reads_symbols_ else options.n_features_
        self.latch = Latch(
            features, width, layers, batch_first=True, **{name: getattr(options, name) for name in names}
        )
        self.head = nn.Linear((4 if options.bidirectional else 2) * width, classes)

    def forward(self, rows: list[Tensor]) -> Tensor:
        """Logits (B, classes)."""
        lengths = torch.tensor([len(row) for row in rows])
        inputs = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        if self.embedding is not None:
            inputs = self.embedding(inputs)
        y, _ = self.latch(inputs, lengths=lengths)  # 0 after each sequence's end
        both = torch.cat((y.sum(1) / lengths.unsqueeze(1), at_step(y, lengths - 1)), -1)
        logits: Tensor = self.head(both)
        return logits


class _Fit(Plan):
    """Epochs over all sequences, each in an order of its own; AdamW, its rate falling to 0."""

    name = "fit"

    def __init__(self, owner: LatchClassifier, rows: list[Tensor], targets: Tensor, seed: int) -> None:
        self.owner, self.rows, self.targets, self.seed = owner, rows, targets, seed
        self.steps = -(-len(rows) // owner.batch_size)  # of an epoch
        self.curve: list[float] = []
        self.total = 0.0

    def batches(self, step: int, rank: int, world: int) -> Sequence[tuple[Any, float]]:
        epoch, number = divmod(step, self.steps)
        order = generator(self.seed, "order", epoch).permutation(len(self.rows))
        chosen = order[number * self.owner.batch_size : (number + 1) * self.owner.batch_size]
        return [(chosen, 1.0)]

    def loss(self, network: nn.Module, batch: Any) -> Outcome:
        logits, targets = network([self.rows[each] for each in batch]), self.targets[batch]
        right = int((logits.argmax(-1) == targets).sum())
        return Outcome(nn.functional.cross_entropy(logits, targets), asked=len(batch), right=right)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.owner.learning_rate, weight_decay=self.owner.weight_decay)

    def rate(self, step: int) -> float:
        return self.owner.learning_rate * (1 - step / (self.owner.epochs * self.steps))

    def observe(self, training: Training, step: Step) -> None:
        self.total += step.loss * step.asked
        if (step.number + 1) % self.steps == 0:
            self.curve.append(self.total / len(self.rows))
            self.total = 0.0
            if len(self.curve) == self.owner.epochs:
                self.stopped = "all epochs"
