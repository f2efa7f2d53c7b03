"""AdamW or Muon, as a config says. Its learning rate and decay are set at every step."""

from __future__ import annotations

import re
from math import cos, pi

import torch
from torch import nn

from latchwork.training.config import OptimizerConfig, PretrainingConfig, at
from latchwork.training.muon import Muon

KINDS = {"adamw": torch.optim.AdamW, "muon": Muon}
RATES = "A_log"  # Mamba's, which its authors let no decay touch: by their shape they are a matrix, in their use not
# What words come in and go out by: AdamW steps it.
OUTER = re.compile(r"(^|\.)((\w*_)?emb(ed\w*)?|head|lm_head|wte|wpe)\.")


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW, fused where torch has it so, alone or with Muon for the matrices between embedding and head.

    Groups of parameters: by whether they decay, and who steps them.
    """
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, each in model.named_parameters():
        if each.requires_grad:
            matrix = each.dim() > 1 and not name.endswith(RATES)
            inner = config.name != "adamw" and matrix and each.dim() == 2 and not OUTER.search(name)
            groups.setdefault((config.decay == "all" or matrix, inner), []).append(each)
    own = {"momentum": config.momentum, "rate": config.matrix_rate}
    return KINDS[config.name](
        [
            {"params": parameters, "decays": decays, **(own if inner else {})}
            for (decays, inner), parameters in sorted(groups.items(), reverse=True)
        ],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        fused=True,
    )


def set_step(optimizer: torch.optim.Optimizer, config: PretrainingConfig, step: int) -> float:
    """Set what this step wants, and return its learning rate."""
    rate, decay = learning_rate(config, step), at(config.optimizer.weight_decay, step)
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["weight_decay"] = decay if group["decays"] else 0.0
    return rate


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
