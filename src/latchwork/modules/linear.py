"""nn.Linear, faster for the few vectors of a decoding step."""

from __future__ import annotations

from torch import Tensor, nn

from latchwork.ops.matvec import linear


def has_hooks(*modules: nn.Module) -> bool:
    """Whether a call of one of them runs more than its class's forward. Then it must be called, not bypassed."""
    for module in modules:
        if (
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
            or "forward" in module.__dict__
        ):
            return True
    every = nn.modules.module
    return bool(
        every._global_forward_hooks
        or every._global_forward_pre_hooks
        or every._global_backward_hooks
        or every._global_backward_pre_hooks
    )


class Linear(nn.Linear):
    """nn.Linear, but on the CPU a few vectors go to our own kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) to (..., outputs)."""
        return linear(x, self.weight, self.bias)
