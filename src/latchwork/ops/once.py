"""Functions that can be differentiated once."""

from __future__ import annotations

import torch


def refuse_second_derivative() -> None:
    """To be called in a backward: an error where its own gradient may be asked for, instead of silence."""
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "the fused kernels of a layer and of the loss have no second derivative: call backward without "
            "create_graph=True, or use float64, for which the layer runs in its parts"
        )
