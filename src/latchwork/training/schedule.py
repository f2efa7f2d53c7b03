"""The learning rate of a step. It has no memory, so that nothing is to be saved."""

from __future__ import annotations

from math import cos, pi

from latchwork.training.config import PretrainingConfig, at


def learning_rate(config: PretrainingConfig, step: int) -> float:
    """The rate with which step (counted from 0) moves the weights: up, over the warm-up's steps, then down."""
    schedule, peak = config.schedule, config.optimizer.learning_rate * at(config.schedule.scale, step)
    total = schedule.steps or config.steps
    warm = round(schedule.warmup * total)
    if step < warm:
        return peak * (step + 1) / warm
    if schedule.shape == "constant":
        return peak
    done = min(1.0, (step - warm) / max(1, total - warm))
    left = 1 - done if schedule.shape == "linear" else 0.5 * (1 + cos(pi * done))
    return peak * (schedule.final + (1 - schedule.final) * left)
