"""AdamW as a config says, its rate and decay set anew at every step."""

from __future__ import annotations

import torch
from torch import nn

from latchwork.pretraining.config import OptimizerConfig, PretrainingConfig, at
from latchwork.pretraining.schedule import learning_rate

RATES = "A_log"  # Mamba's, which its authors let no decay touch: by their shape they are a matrix, in their use not


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW, fused where torch has it so. Two groups of parameters: those that decay, and those that do not."""
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, each in model.named_parameters():
        if each.requires_grad:
            matrix = each.dim() > 1 and not name.endswith(RATES)
            groups[config.decay == "all" or matrix].append(each)
    return torch.optim.AdamW(
        [{"params": parameters, "decays": decays} for decays, parameters in groups.items() if parameters],
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
