"""Means and intervals, over seeds and over sequences. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy

from latchwork.extras import optional

FEW = 10  # sequences: of fewer it is not known how much they differ, and there is no interval


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


def wilson(successes: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a probability. The numbers need not be whole: trials that depend on others count less.

    >>> [round(bound, 2) for bound in wilson(9, 10)]
    [0.6, 0.98]
    """
    if not 0 <= successes <= trials or not trials > 0:
        raise ValueError(f"successes must be 0 to trials, of more than 0 trials; got {successes} of {trials}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    middle = (successes + z * z / 2) / (trials + z * z)
    half = z / (trials + z * z) * sqrt(successes * (trials - successes) / trials + z * z / 4)
    return max(0.0, middle - half) if successes else 0.0, min(1.0, middle + half) if successes < trials else 1.0


def by_sequence(asked: Sequence[int], right: Sequence[int]) -> dict[str, int]:
    """What is kept of the answers of each sequence: sums, which of several data sets are added.

    >>> by_sequence([4, 4], [4, 1])
    {'asked': 8, 'right': 5, 'asked_asked': 32, 'asked_right': 20, 'right_right': 17}
    """
    pairs = list(zip(asked, right, strict=True))
    return {
        "asked": sum(asked),
        "right": sum(right),
        "asked_asked": sum(a * a for a in asked),
        "asked_right": sum(a * r for a, r in pairs),
        "right_right": sum(r * r for r in right),
    }


def accuracy_interval(sums: Mapping[str, int], sequences: int, confidence: float = 0.95) -> Interval | None:
    """The share of right answers and its interval, where the answers of one sequence depend on each other.

    sums: of `by_sequence`. Wilson's interval for as many answers as, if they were independent, would vary as much as
    the sequences do (Korn and Graubard, 1998): hardly as many as there are sequences if each is wholly right or wholly
    wrong, and never more than were asked for. None for fewer than FEW sequences.
    >>> right_or_wrong = by_sequence([1000] * 16, [1000] * 2 + [0] * 14)
    >>> [round(each, 2) for each in accuracy_interval(right_or_wrong, 16)]
    [0.12, 0.03, 0.39]
    >>> [round(each, 3) for each in accuracy_interval(by_sequence([1000] * 16, [120, 130] * 8), 16)]
    [0.125, 0.12, 0.13]
    """
    asked, right = sums["asked"], sums["right"]
    if sequences < FEW or not asked:
        return None
    share = right / asked
    squares = (  # of the differences from the share; whole numbers, so that nothing is lost
        sums["right_right"] * asked**2 - 2 * sums["asked_right"] * right * asked + sums["asked_asked"] * right**2
    )
    variance = squares * sequences / ((sequences - 1) * asked**4)
    count = float(sequences)  # where all are wholly right, or all wholly wrong: as if each were one answer
    if 0 < right < asked:
        tail = 0.5 + confidence / 2
        narrower = (NormalDist().inv_cdf(tail) / float(_scipy_stats().t.ppf(tail, sequences - 1))) ** 2
        count = min(asked, narrower * share * (1 - share) / variance) if variance else asked
    return Interval(share, *wilson(share * count, count, confidence))


def _scipy_stats() -> Any:
    return optional("experiments", "scipy.stats")
