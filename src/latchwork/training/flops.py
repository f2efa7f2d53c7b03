"""How much a model must compute, and how much a machine could."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from latchwork.baselines.registry import ModelConfig


def flops_per_token(model: nn.Module, config: ModelConfig, context: int) -> float:
    """Floating-point operations of one token of training: 6 for each weight of a product, forward and backward.

    The head counts, the look-up of an embedding does not; where they are one matrix it is counted once. Attention adds
    the products of a token with the tokens before it, half of the context on average. What is computed again under
    gradient checkpointing is no work of the model and does not count, nor do norms and recurrences: next to the
    products they are little.
    """
    tied = {id(each) for each in _heads(model)}
    weights = 0
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            weights += module.weight.numel() if id(module.weight) in tied else 0
        else:
            own = [each for each in module.parameters(recurse=False) if each.dim() > 1 and id(each) not in tied]
            weights += sum(each.numel() for each in own)
    attention = 0.0
    if config.kind == "transformer":
        attention = 12 * config.options["n_layers"] * config.options["width"] * context / 2
    return 6 * weights + attention


def _heads(model: nn.Module) -> list[Tensor]:
    """The embeddings that are the head too: every kind of model here has one, unless its weights are not tied."""
    embeddings = [
        each.weight
        for name, each in model.named_modules()
        if isinstance(each, nn.Embedding) and name != "position_embedding"
    ]
    tied = getattr(getattr(model, "config", None), "tie_weights", True)
    return embeddings if tied else []


def measure_peak(device: torch.device, dtypes: Iterable[torch.dtype], seconds: float = 0.5) -> float:
    """Floating-point operations a second of a large product on this device, in the type in which it is fastest.

    What the use of the device is measured by. A processor may be far slower in bfloat16 than in float32.
    """
    return max(_measure(device, dtype, seconds) for dtype in dtypes)


def _measure(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    size = 8192 if device.type == "cuda" else 1024
    a, b = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        (a @ b)[0, 0].item()  # waits for the device
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
