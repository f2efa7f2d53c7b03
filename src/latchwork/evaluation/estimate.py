"""The loss on text that is not trained on: random batches, and the interval that their losses give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy

from latchwork.extras import optional

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """The mean of batch losses, and its interval's half width: the true mean lies within, 95 times in 100."""

    mean: float
    margin: float


def estimate(losses: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Student's interval for the mean of independent batch losses.

    >>> found = estimate([3.0, 3.2, 3.1, 3.3])
    >>> print(f"{found.mean:.3f} ± {found.margin:.3f}")
    3.150 ± 0.205
    """
    if len(losses) < 2:
        raise ValueError(f"losses must be at least 2, to know how far they spread; got {len(losses)}")
    values = numpy.asarray(losses, dtype=numpy.float64)
    factor = float(optional("lm", "scipy.stats").t.ppf((1 + confidence) / 2, len(values) - 1))
    return Estimate(float(values.mean()), factor * float(values.std(ddof=1)) / sqrt(len(values)))
