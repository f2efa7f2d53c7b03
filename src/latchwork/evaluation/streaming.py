"""Accuracy over sequences of a million steps, in constant memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from latchwork.evaluation.statistics import by_sequence
from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.linear import has_hooks
from latchwork.ops.torch.cross_entropy import first_of_largest
from latchwork.tasks.task import IGNORE, Task

BUCKETS = 64  # of the position, evenly spaced in its logarithm


def evaluate(
    model: nn.Module,
    task: Task,
    *,
    seed: int,
    sequences: int,
    length: int,
    split: str = "evaluation",
    rows: int = 64,
    chunk: int = 4096,
    watch: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Run the model over `sequences` sequences of `length` steps, `rows` at once, and count.

    Returns plain values, as JSON takes them:
    average: the share of right answers; logits with a NaN give none. minimum: the accuracy at the worst step. change:
    the accuracy at the steps where the answer differs from the one before it, or None if there are none. constant: the
    accuracy of the best answer that never changes, on this very data; answers: how often each token is the answer.
    by_sequence: what `statistics.accuracy_interval` takes. positions: for each bucket its first step, the step after
    its last, the number of answers asked for and of right ones. watch: called with the steps done and those to do.
    """
    correct, asked = numpy.zeros(length, numpy.int64), numpy.zeros(length, numpy.int64)
    answers = torch.zeros(task.vocabulary, dtype=torch.int64)
    changed = right = 0
    each_correct, each_asked = torch.zeros(sequences, dtype=torch.int64), torch.zeros(sequences, dtype=torch.int64)
    training, device = model.training, next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for first_row in range(0, sequences, rows):
            count = min(rows, sequences - first_row)
            state, step, before = None, 0, None
            for tokens, targets in task.stream(split, seed * 10_007 + first_row, count, length, chunk):
                said, state = _answers(model, tokens.to(device), state)
                kept = targets != IGNORE
                hit = (said.cpu() == targets) & kept  # where a logit is a NaN, -1 is said
                previous = torch.cat((targets[:, :1] if before is None else before, targets[:, :-1]), 1)
                change = kept & (previous != targets) & (previous != IGNORE)
                changed, right = changed + int(change.sum()), right + int((hit & change).sum())
                steps = slice(step, step + tokens.shape[1])
                correct[steps] += hit.sum(0).numpy()
                asked[steps] += kept.sum(0).numpy()
                each_correct[first_row : first_row + count] += hit.sum(1)
                each_asked[first_row : first_row + count] += kept.sum(1)
                answers += torch.bincount(targets[kept], minlength=task.vocabulary)
                step, before = steps.stop, targets[:, -1:]
                if watch is not None:
                    watch(first_row * length + step * count, sequences * length)
    model.train(training)
    total = int(asked.sum())
    used = asked > 0
    edges = [0, *numpy.unique(numpy.geomspace(1, length, BUCKETS + 1).round().astype(int)).tolist()[1:]]
    edges = edges if len(edges) > 1 else [0, length]  # of one step
    return {
        "seed": seed,
        "sequences": sequences,
        "length": length,
        "average": float(correct.sum() / max(1, total)),
        "minimum": float((correct[used] / asked[used]).min()) if total else 0.0,
        "change": right / changed if changed else None,
        "changes": changed,
        "constant": float(answers.max() / max(1, total)),
        "answers": answers.tolist(),
        "by_sequence": by_sequence(each_asked.tolist(), each_correct.tolist()),
        "positions": [
            [low, high, int(asked[low:high].sum()), int(correct[low:high].sum())]
            for low, high in pairwise(edges)
            if asked[low:high].any()
        ],
    }


def _answers(model: nn.Module, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The best token after each token, and the state."""
    if type(model) is MinMaxRNC_LM and not has_hooks(model):
        return model.predict(tokens, state)
    logits, state = model(tokens, state)
    return first_of_largest(logits), state
