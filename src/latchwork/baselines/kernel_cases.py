"""Cases for the kernels of the baselines: what each computes, and tensors of given sizes to compute it of.

`latchwork check` and the tests compare kernels with their definitions on these.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from latchwork.baselines.attention import attention
from latchwork.baselines.causal_conv import MOST_TAPS
from latchwork.baselines.feedforward import gated_feedforward
from latchwork.baselines.gru_scan import gru_scan
from latchwork.baselines.linear import Norm, linear
from latchwork.baselines.mamba_mixer import MixerWeights as MambaWeights
from latchwork.baselines.mamba_mixer import mamba_mixer
from latchwork.baselines.mlstm_mixer import MixerWeights, mlstm_mixer
from latchwork.baselines.mlstm_scan import MLSTMCellState, mlstm_heads
from latchwork.baselines.slstm_scan import HeadWeights, SLSTMCellState, slstm_heads

Case = tuple[Callable[..., tuple[Tensor, ...]], list[Tensor]]  # the function, and what it is given


def normal(*shape: int) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape)


def mamba(B: int, T: int, D: int) -> Case:
    """Between the two projections of a layer."""

    def run(mapped: Tensor, before: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        return mamba_mixer(mapped, before, MambaWeights(*given[:-1]), given[-1])

    N, R, K = 16 if D > 16 else 3, 1 + D % 7, 2 + T % (MOST_TAPS - 1)
    sizes = [(B, T, 2 * D), (B, K - 1, D), (D, 1, K), (D,), (R + 2 * N, D), (D, R), (D,), (N, D), (D,), (B, N, D)]
    given = [normal(*each) for each in sizes]
    given[4], given[7] = given[4] / D**0.5, -given[7].exp()
    return run, given


def gru(B: int, T: int, D: int) -> Case:
    """The recurrence."""
    return lambda *given: (gru_scan(*given),), [normal(B, T, 3 * D), normal(3 * D, D) / D, normal(3 * D), normal(B, D)]


def attending(B: int, T: int, d: int, before: int = 0, window: int | None = None) -> Case:
    """Three heads; v is a part of something wider."""
    given = [normal(B, T + (number and before), 3 * d + (number == 2)) for number in range(3)]
    return lambda q, k, v: (attention(q, k, v[..., 1:], 3, window),), given


def looking_back(B: int, T: int, d: int) -> Case:
    """With keys from before, of which the first steps see some."""
    return attending(B, T, d, before=40, window=T // 2 + 30)


def slstm(B: int, T: int, d: int) -> Case:
    """Two heads."""

    def run(mapped: Tensor, before: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        *weights, y, c, n = given
        state = SLSTMCellState(y, c, n, torch.zeros_like(n) - 0.7)
        y, state = slstm_heads(mapped, before, HeadWeights(*weights), state)
        return y, state.c, state.n

    H, W, K = 2, 2 * d, 2 + T % (MOST_TAPS - 1)
    weights = [normal(W, 1, K), normal(W), normal(H, d, 4 * d) / d**0.5, normal(H, 4, d), normal(H, d, 4 * d) / d]
    states = [normal(H, B, d), normal(H, B, d), 0.1 + normal(H, B, d).abs()]
    return run, [normal(B, T, W), normal(B, K - 1, W), *weights, *states]


def mlstm(B: int, T: int, d: int) -> Case:
    """Three heads."""

    def run(q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, c: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        y, state = mlstm_heads(q, k, v, i, f, MLSTMCellState(c, n, torch.full_like(i[:, 0, :, None], 0.3)), scale=0.4)
        return y, state.c, state.n

    H, e = 3, 2 * d + 1  # the values are of another width than the keys
    flat = [normal(B, T, H * d), normal(B, T, H * d), normal(B, T, H * e), normal(B, T, H), 2 + normal(B, T, H)]
    return run, [*flat, normal(B, H, d, e), normal(B, H, d)]


def mlstm_mixing(B: int, T: int, d: int) -> Case:
    """Two heads of 4 d channels."""

    def run(mapped: Tensor, before: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        *weights, c, n = given
        state = MLSTMCellState(c, n, torch.full_like(n[..., :1], 0.3))
        y, state = mlstm_mixer(mapped, before, MixerWeights(*weights), state, 1e-2)
        return y, state.c, state.n

    H, W, K = 2, 8 * d, 2 + T % (MOST_TAPS - 1)
    maps = [normal(W // 4, 4, 4) / 2 for _ in range(3)]
    gates = [normal(2 * H, 3 * W) / W, torch.cat([torch.zeros(H), torch.full((H,), 2.0)])]
    given = [normal(B, T, 2 * W), normal(B, K - 1, W), normal(W, 1, K), normal(W), *maps, *gates, normal(W), normal(W)]
    return run, [*given, normal(B, H, 4 * d, 4 * d), normal(B, H, 4 * d)]


def rows(B: int, T: int, D: int) -> Case:
    """A linear map with a bias."""
    return lambda *given: (linear(*given),), [normal(B, T, D), normal(2 * D + 1, D), normal(2 * D + 1)]


def blocks(B: int, T: int, D: int) -> Case:
    """The middle columns of a wider tensor; each third of them has a weight of its own."""

    def run(wide: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        return (linear(wide[..., 1 : 3 * D + 1], *given),)

    return run, [normal(B, T, 3 * D + 2), normal(3, D + 4, D), normal(3 * D + 12)]


def gated(B: int, T: int, D: int) -> Case:
    """The gate is the first half of the input."""

    def run(both: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        return (linear(both, weight, bias, paired=True, activation="gelu", residual=residual),)

    return run, [normal(B, T, 2 * D), normal(D + 3, D), normal(D + 3), normal(B, T, D + 3)]


def fed(B: int, T: int, D: int) -> Case:
    """A feed-forward network; with biases for odd widths, else without."""

    def run(u: Tensor, weight: Tensor, up: Tensor, down: Tensor, *biases: Tensor) -> tuple[Tensor, ...]:
        up_bias, down_bias = biases or (None, None)
        norm = Norm(weight, 1e-3, centred=T > 7)
        return (gated_feedforward(u, norm, (up, up_bias), (down, down_bias), activation="gelu"),)

    H = D + 3
    biases = [normal(2 * H), normal(D)] if D % 2 else []
    return run, [normal(B, T, D), normal(D), normal(2 * H, D), normal(D, H), *biases]


def dressed(B: int, T: int, D: int) -> Case:
    """Norms of three heads, a skip and a gate; with a product for odd widths, else without."""

    def run(
        u: Tensor, weight: Tensor, skip: Tensor, mixed: Tensor, gate: Tensor, residual: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        norm = Norm(weight, 1e-3, heads=3, centred=T > 7)
        return (linear(u, *weights, norm=norm, skip=(skip, mixed), gate=gate, activation="silu", residual=residual),)

    rows, D = (B, T), 3 * D
    return run, [
        *(normal(*rows, D), normal(D), normal(D), normal(*rows, D), normal(*rows, D), normal(*rows, D)),
        *([normal(D, D)] if D % 2 else []),
    ]


KERNELS: dict[str, Callable[[int, int, int], Case]] = {
    "linear": rows,
    "gated": gated,
    "dressed": dressed,
    "feedforward": fed,
    "blocks": blocks,
    "mamba": mamba,
    "gru": gru,
    "attention": attending,
    "attention_window": looking_back,
    "slstm": slstm,
    "mlstm": mlstm,
    "mlstm_mixer": mlstm_mixing,
}
