"""Means and intervals over seeds. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy


class Interval(NamedTuple):
    """A mean, and the bounds that hold it with the given confidence."""

    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """The larger distance of a bound from the mean."""
        return max(self.high - self.mean, self.mean - self.low)


def bootstrap(values: Sequence[float], confidence: float = 0.99, resamples: int = 10_000, seed: int = 0) -> Interval:
    """The percentile bootstrap of the mean, by scipy, seeded. Equal values have no spread: the interval is a point.

    >>> bootstrap([1.0, 1.0, 1.0])
    Interval(mean=1.0, low=1.0, high=1.0)
    """
    if not len(values):
        raise ValueError("values must not be empty")
    mean = float(numpy.mean(values))
    if len(set(values)) == 1:
        return Interval(values[0], values[0], values[0])
    interval = (
        _scipy_stats()
        .bootstrap(
            (numpy.asarray(values, float),),
            numpy.mean,
            confidence_level=confidence,
            n_resamples=resamples,
            method="percentile",
            random_state=numpy.random.default_rng(seed),
        )
        .confidence_interval
    )
    return Interval(mean, float(interval.low), float(interval.high))


def wanted_margin(mean: float) -> float:
    """How narrow the interval of an evaluation has to be: the better the model, the narrower. Shares, not per cent."""
    return 0.2 if mean < 0.5 else 0.1 if mean < 0.8 else 0.05 if mean < 0.9 else 0.01


def enough_data(means: Sequence[float], confidence: float = 0.99, resamples: int = 10_000) -> bool:
    """Whether the interval of the data sets' accuracies is as narrow as their mean asks for."""
    interval = bootstrap(means, confidence, resamples)
    return interval.margin < wanted_margin(interval.mean)


def next_seed_bound(accuracies: Sequence[float], confidence: float = 0.99) -> float:
    """What the validation accuracy of one more seed stays below with this confidence.

    The one-sided prediction bound of a normal sample, m + t s sqrt(1 + 1 / n) with t of n - 1 degrees of freedom, and
    never more than 1. A bootstrap of the best value cannot serve: no resample holds a value above the best one seen, so
    that a rule made of it always says "enough".
    """
    if len(accuracies) < 2:
        return 1.0
    n = len(accuracies)
    mean, deviation = float(numpy.mean(accuracies)), float(numpy.std(accuracies, ddof=1))
    return min(1.0, mean + float(_scipy_stats().t.ppf(confidence, n - 1)) * deviation * sqrt(1 + 1 / n))


def enough_seeds(
    accuracies: Sequence[float],
    *,
    minimum: int = 3,
    maximum: int = 10,
    confidence: float = 0.99,
    margin: float = 0.001,
) -> bool:
    """Whether to stop: one more seed would, with this confidence, not be better than the best by more than margin.

    >>> enough_seeds([1.0, 1.0, 1.0])
    True
    >>> enough_seeds([0.2, 0.9, 0.5])
    False
    """
    if len(accuracies) < minimum:
        return False
    return len(accuracies) >= maximum or next_seed_bound(accuracies, confidence) <= max(accuracies) + margin


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a probability, by scipy.

    >>> [round(bound, 2) for bound in wilson(9, 10)]
    [0.6, 0.98]
    """
    interval = _scipy_stats().binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError("scipy is missing: pip install 'latchwork[experiments]'") from error
    return stats
