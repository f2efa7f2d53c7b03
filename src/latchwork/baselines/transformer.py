"""A causal Transformer with rotary or learned positions and a cache of keys and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.baselines.attention import attention
from latchwork.baselines.baseline import Baseline
from latchwork.baselines.linear import linear
from latchwork.modules.init import small_init_init_


class Cache(NamedTuple):
    """Of one layer: keys and values (B, P, width), and how many steps there were.

    Keys are turned already where positions are angles.
    """

    keys: Tensor
    values: Tensor
    steps: Tensor


class Transformer(Baseline):
    """Norm, attention, norm, a feed-forward network four times as wide; the head is the embedding.

    The positions are angles, so that any length runs. The cache grows with every step, and so do memory and time: at
    T steps, 2 n_layers width T numbers for each row. With `window` a step sees itself and the window - 1 steps
    before, in each layer, and the cache stays that small.
    positions: learn so many instead, as GPT-2 does, and begin with its weights, N(0, 0.02^2), less by sqrt(2 n_layers)
    on the way back into the residual stream; more steps than that are an error.
    """

    def __init__(
        self,
        vocabulary: int,
        n_layers: int = 2,
        *,
        width: int,
        heads: int = 4,
        window: int | None = None,
        positions: int | None = None,
    ) -> None:
        super().__init__(vocabulary, n_layers)
        if width % (2 * heads):
            raise ValueError(f"width must be a multiple of 2 heads = {2 * heads}; got {width}")
        if window is not None and window < 1:
            raise ValueError(f"window must be at least 1, or None; got {window}")
        if positions is not None and positions < 1:
            raise ValueError(f"positions must be at least 1, or None; got {positions}")
        self.embedding = nn.Embedding(vocabulary, width)
        small_init_init_(self.embedding.weight, width)
        self.layers = nn.ModuleList(Block(width, heads, window, positions is None) for _ in range(n_layers))
        self.norm = nn.LayerNorm(width)
        self.position_embedding = None if positions is None else nn.Embedding(positions, width)
        if positions is not None:
            self._begin_as_gpt2()

    def _begin_as_gpt2(self) -> None:
        for name, each in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(each)
            elif each.dim() > 1:
                back = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(each, std=0.02 / (2 * self.n_layers) ** 0.5 if back else 0.02)

    def initial_state(self, batch_size: int) -> tuple[Cache, ...]:
        """Caches of no steps."""
        return tuple(block.initial_cache(batch_size) for block in self._blocks())

    def _blocks(self) -> list[Block]:
        return list(self.layers)  # type: ignore[arg-type]

    def _run(self, tokens: Tensor, state: tuple[Cache, ...]) -> tuple[Tensor, tuple[Cache, ...]]:
        blocks, after, mapped = self._blocks(), [], None
        if self.position_embedding is None:
            u, mapped = self._embed_and_map(self.embedding, tokens, blocks[0].map)
        else:
            u = self._embed(self.embedding, tokens) + self._position(state[0].steps, tokens.shape[1])
        for block, cache in zip(blocks, state, strict=True):
            u, cache = block(u, cache, mapped)
            after.append(cache)
            mapped = None  # it was that of the first
        return linear(self.norm(u), self.embedding.weight), tuple(after)

    def _position(self, steps: Tensor, T: int) -> Tensor:
        """(T, width), for the T steps after these."""
        assert self.position_embedding is not None
        most = self.position_embedding.num_embeddings
        if int(steps) + T > most:
            raise ValueError(f"tokens must be at most {most} with those before, as there are positions; got {T} more")
        place: Tensor = self.position_embedding(steps + torch.arange(T, device=steps.device))
        return place

    def _check_state(self, state: Any, batch_size: int) -> None:
        """As for the others, but for the number of steps that a cache holds."""
        try:
            state = tuple(Cache(keys[:, :0], values[:, :0], steps) for keys, values, steps in state)
        except (TypeError, ValueError, IndexError):
            raise ValueError("state must be as this model returns it: for each layer keys, values, steps") from None
        super()._check_state(state, batch_size)


class Block(nn.Module):
    """One layer."""

    def __init__(self, width: int, heads: int, window: int | None, rotary: bool) -> None:
        super().__init__()
        self.heads, self.window, self.rotary = heads, window, rotary
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def initial_cache(self, batch_size: int) -> Cache:
        """No steps."""
        weight = self.out.weight
        empty = weight.new_zeros(batch_size, 0, weight.shape[0])
        return Cache(empty, empty, torch.zeros((), dtype=torch.int64, device=weight.device))

    def map(self, u: Tensor) -> Tensor:
        """Queries, keys and values (..., 3 width) of u (..., width)."""
        return linear(self.attention_norm(u), self.qkv.weight, self.qkv.bias)

    def forward(self, u: Tensor, cache: Cache, mapped: Tensor | None = None) -> tuple[Tensor, Cache]:
        """u: (B, T, width). mapped: the result of `map`, if it is there already."""
        y, cache = self._attend(self.map(u) if mapped is None else mapped, cache)
        u = linear(y, self.out.weight, self.out.bias, residual=u)
        inside = F.gelu(linear(self.feedforward_norm(u), self.up.weight, self.up.bias))
        return linear(inside, self.down.weight, self.down.bias, residual=u), cache

    def _attend(self, mapped: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        q, k, v = mapped.chunk(3, -1)
        if self.rotary:
            q, k = (turn(each.view(*each.shape[:2], self.heads, -1), cache.steps).flatten(2) for each in (q, k))
        steps = cache.steps + q.shape[1]
        if cache.keys.shape[1]:
            k, v = torch.cat([cache.keys, k], 1), torch.cat([cache.values, v], 1)
        y = attention(q, k, v, self.heads, self.window)
        if self.window is not None:
            first = max(k.shape[1] - self.window + 1, 0)
            k, v = k[:, first:].clone(), v[:, first:].clone()  # a view would keep all of it
        return y, Cache(k, v, steps)


def turn(q: Tensor, steps: Tensor) -> Tensor:
    """Rotary positions: of q (B, T, heads, d), turn each pair (i, i + d / 2) by (steps + t) / 10000^(2 i / d).

    The angles are float64, so that they are as good after a million steps as at the start.
    """
    T, half = q.shape[1], q.shape[3] // 2
    t = (steps + torch.arange(T, device=q.device)).double()
    angle = t[:, None, None] * 10000 ** (-torch.arange(half, device=q.device, dtype=torch.float64) / half)
    cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
    a, b = q[..., :half], q[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
