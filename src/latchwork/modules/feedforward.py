"""Feed-forward networks, gated or plain."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.modules.init import small_init_init_, wang_init_
from latchwork.modules.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu^2": lambda z: F.relu(z).square(),
    "gelu": F.gelu,
    "swish": F.silu,
    "sigmoid": F.sigmoid,
    "selu": F.selu,
}


def hidden_width(d_model: int, proj_factor: float) -> int:
    """proj_factor * d_model, rounded up to an even number."""
    return 2 * ceil(round(proj_factor * d_model, 6) / 2)  # 1.3 * 90 is 117, not 117.00000000000001


class _Projections(nn.Module):
    """What both kinds share: up, an activation, down, dropout, and their initialisation."""

    hiddens: int  # how many hidden vectors W1 returns

    def __init__(
        self,
        d_model: int,
        *,
        proj_factor: float = 1.3,
        act_fn: str = "relu",
        dropout: float = 0.1,
        init: str = "scaled",
        n_layers: int = 1,
    ) -> None:
        super().__init__()
        if act_fn not in ACTIVATIONS:
            raise ValueError(f"act_fn must be one of {', '.join(ACTIVATIONS)}; got {act_fn!r}")
        if init not in ("scaled", "basic"):
            raise ValueError(f"init must be one of scaled, basic; got {init!r}")
        hidden = hidden_width(d_model, proj_factor)
        self.up = Linear(d_model, self.hiddens * hidden)
        self.down = Linear(hidden, d_model)
        self.dropout = nn.Dropout(dropout)
        self.act_fn = act_fn
        if init == "scaled":
            small_init_init_(self.up.weight, d_model)
            wang_init_(self.down.weight, hidden, n_layers)
            nn.init.zeros_(self.up.bias)
            nn.init.zeros_(self.down.bias)


class FeedForward(_Projections):
    """y = W2 act(W1 u), hidden width proj_factor * d_model rounded up to even."""

    hiddens = 1

    def forward(self, u: Tensor) -> Tensor:
        """u and y (..., d_model)."""
        y: Tensor = self.dropout(self.down(ACTIVATIONS[self.act_fn](self.up(u))))
        return y


class GatedFeedForward(_Projections):
    """y = W2 (act(gate) * value) with [gate, value] = W1 u: with relu a ReGLU, with swish a SwiGLU."""

    hiddens = 2

    def forward(self, u: Tensor) -> Tensor:
        """u and y (..., d_model)."""
        gate, value = self.up(u).chunk(2, dim=-1)
        y: Tensor = self.dropout(self.down(ACTIVATIONS[self.act_fn](gate) * value))
        return y
