"""The models that are compared: ours, the paper's own, and others of as many parameters.

The others have two layers, a head that is their embedding transposed, as ours is, and no dropout, which ours and the
paper's have in the second layer.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.models import from_minmaxrnc

OURS, PEER = "latchwork", "minmaxrnc"
COMPILED = f"{OURS}, torch.compile"
LONGEST = 512  # positions that the Transformer learns
HEADS = 4


@dataclass(frozen=True)
class Contender:
    """A model, and how it makes logits of tokens (B, T)."""

    model: nn.Module
    logits: Callable[[Tensor], Tensor]
    fewer: int = 1  # it is given B / fewer rows, and its time is multiplied
    own_loss: Callable[[Tensor, Tensor], Tensor] | None = None

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over all positions."""
        if self.own_loss is not None:
            return self.own_loss(tokens, targets)
        return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())


def parameters(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters() if each.requires_grad)


def paper_model(vocab_size: int, config: MinMaxRNCLMConfig) -> Any:
    """The model of minmaxrnc that is like ours of this configuration."""
    import minmaxrnc

    ours = config.resolved_backbone
    backbone = minmaxrnc.MinMaxRNCConfig(d_model=ours.d_model, n_layers=ours.n_layers, d_state=ours.d_state)
    return minmaxrnc.MinMaxRNC_LM(vocab_size, minmaxrnc.MinMaxRNCLMConfig(backbone, conv_type=ours.conv_type))


def twins(vocab_size: int, config: MinMaxRNCLMConfig) -> tuple[MinMaxRNC_LM, Any]:
    """Ours and the paper's, with the same weights, to evaluate."""
    theirs = paper_model(vocab_size, config).eval()
    return from_minmaxrnc(theirs.state_dict(), config), theirs


def ours(vocab_size: int, config: MinMaxRNCLMConfig) -> Contender:
    model = MinMaxRNC_LM(vocab_size, config)
    return Contender(model, lambda tokens: model(tokens)[0], own_loss=lambda *batch: model.loss(*batch)[0])


def compiled(vocab_size: int, config: MinMaxRNCLMConfig) -> Contender:
    """Ours by torch.compile, one graph for batches of all sizes."""
    made = ours(vocab_size, config)
    return replace(made, own_loss=torch.compile(made.loss, fullgraph=True, dynamic=True))


def peer(vocab_size: int, config: MinMaxRNCLMConfig) -> Contender:
    model = paper_model(vocab_size, config)
    return Contender(model, lambda tokens: model(tokens, unroll_steps=tokens.shape[1]))


class TiedHead(nn.Module):
    """What the others share: an embedding, which is the head too."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def head(self, y: Tensor) -> Tensor:
        return F.linear(y, self.embedding.weight)


class RecurrentLM(TiedHead):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], vocab_size: int, width: int) -> None:
        super().__init__(vocab_size, width)
        self.layers = kind(width, width, num_layers=2, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(tokens))[0])


class Block(nn.Module):
    """Attention and a feed-forward network four times as wide, each behind its norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_attention, self.norm_up = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, u: Tensor) -> Tensor:
        B, T, width = u.shape
        qkv = self.qkv(self.norm_attention(u)).view(B, T, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        u = u + self.out(mixed.transpose(1, 2).reshape(B, T, width))
        return u + self.down(F.gelu(self.up(self.norm_up(u))))


class Transformer(TiedHead):
    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__(vocab_size, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LONGEST, width))
        self.layers = nn.Sequential(Block(width), Block(width), nn.LayerNorm(width))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(tokens) + self.positions[: tokens.shape[1]]))


def mamba(vocab_size: int, width: int) -> nn.Module:
    """Hugging Face's, on the scan of mambapy: the backward pass of its own loop is quadratic in T."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import MambaConfig, MambaForCausalLM

    sizes = {"vocab_size": vocab_size, "hidden_size": width, "num_hidden_layers": 2}
    return MambaForCausalLM(MambaConfig(**sizes, use_mambapy=True, use_cache=False))


def of_size(make: Callable[[int], nn.Module], count: int, multiple: int = 1) -> nn.Module:
    """The model whose number of parameters is nearest to count, among widths that are a multiple of `multiple`."""

    def size(width: int) -> int:
        with torch.device("meta"):
            return parameters(make(width))

    widths = range(multiple, 1024, multiple)
    place = bisect_left(widths, count, key=size)
    best = min(widths[max(place - 1, 0) : place + 1], key=lambda width: abs(size(width) - count))
    return make(best)


def others(vocab_size: int, count: int) -> dict[str, Callable[[], Contender]]:
    """Name -> how to make it, with about `count` parameters."""

    def plain(make: Callable[[int], nn.Module], multiple: int = 1) -> Contender:
        model = of_size(make, count, multiple)
        return Contender(model, model)

    def hugging_face() -> Contender:
        model = of_size(lambda width: mamba(vocab_size, width), count)
        return Contender(model, lambda tokens: model(tokens).logits, fewer=8)

    return {
        "nn.LSTM": lambda: plain(lambda width: RecurrentLM(nn.LSTM, vocab_size, width)),
        "nn.GRU": lambda: plain(lambda width: RecurrentLM(nn.GRU, vocab_size, width)),
        "Transformer": lambda: plain(lambda width: Transformer(vocab_size, width), multiple=2 * HEADS),
        "HF Mamba": hugging_face,
    }
