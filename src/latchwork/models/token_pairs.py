"""The first layer has few distinct inputs: everything before its recurrence depends on two tokens only.

So its drives are computed once for each pair (token before, token) and looked up. To the layer, a pair is a sequence of
one step, whose state holds the token before. The rule is that of modules/fast_layer.py: it is done only where every
part is as made and has no hooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.modules import fast_layer
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.linear import has_hooks
from latchwork.modules.state import State
from latchwork.ops import dispatch, distributed, transforms

if TYPE_CHECKING:
    from latchwork.models.language_model import MinMaxRNC_LM

SHORTEST = 1024  # B T below which sorting the pairs is not worth it


class Known(NamedTuple):
    """What is known of the pairs before a piece of a sequence is run.

    table: the result of `drive_table`. before: (B,), the tokens that the state has just seen.
    """

    table: Tensor | None = None
    before: Tensor | None = None


NOTHING = Known()


def first_drives(
    model: MinMaxRNC_LM, tokens: Tensor, state: State | None, reset: Tensor | None, known: Known = NOTHING
) -> Tensor | None:
    """`drive` of the first layer for tokens (B, T), by distinct pairs, or None if that is not allowed or not faster.

    With a small vocabulary all pairs are computed, and no size depends on the tokens. Else the pairs are sorted and
    counted, on the CPU and not in a compiled graph. An exported graph has no pairs, since it is for all sizes.
    Where the token before the first is known, the first step is a pair like the others, else its drive is computed.
    """
    if transforms.exporting() or not _allowed(model):
        return None
    B, T = tokens.shape
    V, few = model.vocab_size, B * T // 2
    every = known.table is not None or few >= V * (V + 1) + B
    if not every and (torch.compiler.is_compiling() or B * T < SHORTEST or tokens.device.type != "cpu"):
        return None  # in a graph, no size may depend on the tokens
    tokens = tokens.long()
    start = tokens.new_full((B, 1), V) if known.before is None else known.before.long().unsqueeze(1)  # V: none
    before = torch.cat((start, tokens[:, :-1]), 1)
    if reset is not None:
        before = before.masked_fill(reset, V)
    pairs = before * V + tokens
    if known.table is not None:
        z, places = known.table, pairs
    elif every:
        z, places = _drive_pairs(model, torch.arange(V * (V + 1), device=tokens.device)), pairs
    else:
        rows, places = torch.unique(pairs, return_inverse=True)
        if len(rows) + B > few:
            return None
        z = _drive_pairs(model, rows)
    if state is not None and known.before is None:  # it says what was before the first step of each row
        first = state.conv[0] if reset is None else state.conv[0].masked_fill(reset[:, :1], 0)
        u = _embed(model, tokens[:, :1])
        z = torch.cat((z, fast_layer.drive(_first_layer(model), u, first.to(u.dtype))[:, 0]))
        own = len(z) - B + torch.arange(B, device=tokens.device)
        places = torch.cat((own.unsqueeze(1), places[:, 1:]), 1)
    return F.embedding(places, z)


def drive_table(model: MinMaxRNC_LM, steps: int) -> Tensor | None:
    """The drives of every pair of tokens, for many calls of `first_drives` without gradients; None if not faster.

    steps: how many tokens there are in all.
    """
    V = model.vocab_size
    if torch.is_grad_enabled() or steps < 2 * V**2 or not _allowed(model):
        return None
    return _drive_pairs(model, torch.arange(V * (V + 1), device=model.embedding.weight.device))


def _allowed(model: MinMaxRNC_LM) -> bool:
    """Whether equal pairs have equal drives, and no hook sees what is between the tokens and the drives."""
    embedding, layer = model.embedding, _first_layer(model)
    return (
        transforms.unfit() is None
        and not distributed.is_split()
        and dispatch.asked_for() in ("auto", "cpu", "triton")
        and type(embedding) is nn.Embedding
        and embedding.max_norm is None
        and not embedding.sparse
        and type(layer) is MinMaxLayer
        and fast_layer.is_as_made(layer)
        and not has_hooks(embedding, model.backbone, layer)
        and not (layer.training and (layer.ffn.dropout.p or layer.neuron.dropout.p))
    )


def _first_layer(model: MinMaxRNC_LM) -> MinMaxLayer:
    layer: MinMaxLayer = model.backbone.layers[0]  # type: ignore[assignment]
    return layer


def _embed(model: MinMaxRNC_LM, tokens: Tensor) -> Tensor:
    return F.embedding(tokens, model.embedding.weight, model.embedding.padding_idx)


def _drive_pairs(model: MinMaxRNC_LM, rows: Tensor) -> Tensor:
    """The drives (P, outputs) of pairs, each given as before V + token, with before = V where there is none."""
    V, layer = model.vocab_size, _first_layer(model)
    previous = layer.norm_conv(_embed(model, (rows // V).clamp(max=V - 1)))
    previous = previous.masked_fill((rows >= V * V).unsqueeze(-1), 0)
    return fast_layer.drive(layer, _embed(model, rows % V).unsqueeze(1), previous)[:, 0]
