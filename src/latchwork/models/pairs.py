"""The first layer sees few distinct inputs: everything before its recurrence depends on two tokens alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latchwork.modules.layer import Distinct

SHORTEST = 1024  # B T below which sorting the pairs is not worth it


def distinct_pairs(
    tokens: Tensor, embedding: nn.Embedding, carried: bool, reset: Tensor | None, table: Tensor | None = None
) -> Distinct | None:
    """The distinct pairs (token before, token) of tokens (B, T), or None where they are no fewer than half of B T.

    carried: whether a state says what was before the first token; then the first step of each row is a row of its own.
    If the vocabulary is small all pairs are taken, and the shapes do not depend on the tokens. Else the pairs are
    sorted and counted, where that costs little: on the CPU. None while a graph is captured: sizes are open there.
    table: the layer's `drive` of `all_pairs`, if known: then only the first steps of the rows are left to do.
    """
    if torch.compiler.is_compiling():
        return None  # the sizes are open, and may not decide
    B, T = tokens.shape
    V, few = embedding.num_embeddings, B * T // 2
    every = table is not None or few >= V * (V + 1) + B
    if not every and (B * T < SHORTEST or tokens.device.type != "cpu"):
        return None
    tokens = tokens.long()
    before = torch.cat((tokens.new_full((B, 1), V), tokens[:, :-1]), 1)
    if reset is not None:
        before = before.masked_fill(reset, V)
    pairs = before * V + tokens
    if every:
        rows, places = torch.arange(V * (V + 1), device=tokens.device), pairs
    else:
        rows, places = torch.unique(pairs, return_inverse=True)
        if len(rows) + B > few:
            return None
    known = rows < V * V
    if carried:
        first = len(rows) + torch.arange(B, device=tokens.device)
        places = torch.cat((first.unsqueeze(1), places[:, 1:]), 1)
        rows = torch.cat((rows, pairs[:, 0]))
        known = torch.cat((known, torch.ones_like(first, dtype=torch.bool) if reset is None else ~reset[:, 0]))
    if table is not None:
        rows, known = rows[len(table) :], known[len(table) :]
    previous = (rows // V).clamp(max=V - 1)
    return Distinct(embedding(rows % V), embedding(previous), known, places, table)


def all_pairs(embedding: nn.Embedding) -> Distinct:
    """Every pair of tokens, and every token with none before it."""
    V = embedding.num_embeddings
    rows = torch.arange(V * (V + 1), device=embedding.weight.device)
    return Distinct(embedding(rows % V), embedding((rows // V).clamp(max=V - 1)), rows < V * V, rows)
