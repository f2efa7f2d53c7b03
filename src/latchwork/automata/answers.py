"""What a network on a grid answers, where every run gives the same answer."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from latchwork.automata import bounds
from latchwork.automata.grid_layer import ROWS, GridLayer, check_run
from latchwork.automata.keys import distinct
from latchwork.models import MinMaxRNC_LM

Array = numpy.ndarray
NOT_SURE = -2


class Answers:
    """The answers at rows of the last layer's drives and states, each computed once.

    double, single: the network in float64, and in float32 to compare. tolerance: how much further than by rounding a
    logit may be off. margin: the smallest distance so far between a sure answer's logit and the next. bound,
    seen_error: how far a logit may be off by rounding, and how far one was in float32, at most so far.
    """

    def __init__(self, double: MinMaxRNC_LM, single: MinMaxRNC_LM, last: GridLayer, tolerance: float) -> None:
        self.double, self.single, self.last, self.tolerance = double, single, last, tolerance
        self.margin, self.bound, self.seen_error = float("inf"), 0.0, 0.0
        self._known: dict[Any, int] = {}

    def at(self, rows: Array, x: Array) -> Array:
        """The answer that every run gives there; NOT_SURE where they may differ."""
        keys, first, places = distinct(self.last.levels, x, self.last.source(rows))
        missing = [k for k, key in enumerate(keys) if key not in self._known]
        for start in range(0, len(missing), ROWS):
            part = missing[start : start + ROWS]
            found = self._compute(rows[first[part]], x[first[part]]).tolist()
            self._known.update(zip((keys[k] for k in part), found, strict=True))
        answers: Array = numpy.array([self._known[key] for key in keys])[places]
        return answers

    def _compute(self, rows: Array, x: Array) -> Array:
        y, small = self.last.outputs(rows, x)
        logits, radius = self._logits(y)
        self.bound = max(self.bound, float(radius.max()))
        off = self._run_logits(self.single, small).double() - logits
        self.seen_error = max(self.seen_error, float(off.abs().max()))
        check_run(off if self.last.run is self.last.single else self._run_logits(self.double, y.value) - logits, radius)
        answer = logits.argmax(-1, keepdim=True)
        others = logits.scatter(1, answer, -torch.inf)
        off = radius + self.tolerance
        sure = ((logits - off).gather(1, answer) > others + off).all(1)
        if bool(sure.any()):
            self.margin = min(self.margin, float((logits.gather(1, answer) - others)[sure].min()))
        answers: Array = torch.where(sure, answer[:, 0], NOT_SURE).numpy()
        return answers

    def _logits(self, y: bounds.Bounded) -> tuple[Tensor, Tensor]:
        """The logits, and how far off each may be."""
        backbone = self.double.backbone
        if backbone.config.use_postlayers_ffn:
            ffn = backbone.postlayers_ffn
            inside = bounds.feed_forward(ffn, bounds.normalise(backbone.norm_postlayers_ffn, y))
            y = bounds.add(y, inside, ffn.down.weight.shape[1] + 1)
        y = bounds.normalise(backbone.norm_postlayers, y)
        return bounds.product_by_entry(y, self.double.head.weight)

    def _run_logits(self, model: MinMaxRNC_LM, y: Tensor) -> Tensor:
        """The logits as a network's own parts compute them, in one batch."""
        backbone = model.backbone
        if backbone.config.use_postlayers_ffn:
            y = y + backbone.postlayers_ffn(backbone.norm_postlayers_ffn(y))
        logits: Tensor = model.head(backbone.norm_postlayers(y))
        return logits
