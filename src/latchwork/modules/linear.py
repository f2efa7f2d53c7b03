"""nn.Linear, faster for the few vectors of a decoding step."""

from __future__ import annotations

from torch import Tensor, nn

from latchwork.ops.matvec import linear


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module runs more than its forward: then no faster way around it may be taken."""
    every = nn.modules.module
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or every._global_forward_hooks
        or every._global_forward_pre_hooks
        or every._global_backward_hooks
        or every._global_backward_pre_hooks
    )


class Linear(nn.Linear):
    """nn.Linear in all but one thing: a vector or a few, without gradients, on the CPU, goes to our own kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) to (..., outputs)."""
        return linear(x, self.weight, self.bias)
