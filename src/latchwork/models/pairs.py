"""The first layer sees few distinct inputs: everything before its recurrence depends on two tokens alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latchwork.modules.layer import Distinct


def distinct_pairs(tokens: Tensor, embedding: nn.Embedding, carried: bool, reset: Tensor | None) -> Distinct | None:
    """The distinct pairs (token before, token) of tokens (B, T), or None where they are no fewer than half of B T.

    carried: whether a state says what was before the first token; then the first step of each row is a row of its own.
    If the vocabulary is small all pairs are taken, and the shapes do not depend on the tokens, as compilers like it.
    Else the pairs are sorted and counted, where that costs little: on the CPU, and not while a graph is captured.
    """
    B, T = tokens.shape
    V, few = embedding.num_embeddings, B * T // 2
    if few < V * (V + 1) + B and (B * T < 1024 or tokens.device.type != "cpu" or torch.compiler.is_compiling()):
        return None
    tokens = tokens.long()
    none = tokens.new_full((B, 1), V)
    before = torch.cat((none, tokens[:, :-1]), 1)
    if reset is not None:
        before = before.masked_fill(reset, V)
    pairs = before * V + tokens
    if few >= V * (V + 1) + B:
        rows, index = torch.arange(V * (V + 1), device=tokens.device), pairs
    else:
        rows, index = torch.unique(pairs, return_inverse=True)
        if len(rows) + B > few:
            return None
    known = rows < V * V
    if carried:
        first = len(rows) + torch.arange(B, device=tokens.device)
        index = torch.cat((first.unsqueeze(1), index[:, 1:]), 1)
        rows = torch.cat((rows, pairs[:, 0]))
        known = torch.cat((known, torch.ones_like(first, dtype=torch.bool) if reset is None else ~reset[:, 0]))
    previous = (rows // V).clamp(max=V - 1)
    return Distinct(embedding(rows % V), embedding(previous), known, index)
