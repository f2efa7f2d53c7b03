"""A bound: all matrix products of a forward and backward pass of our model, by torch.mm, and nothing else.

torch.mm on tensors of the shapes that our model multiplies, in the same memory layout, into memory that is already
there. Products of one shape share their tensors, which favours the bound. Each linear map is three products: its
output, the gradient of its input, the gradient of its weights.
"""

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from latchwork import MinMaxRNC_LM
from latchwork.models.token_pairs import first_drives
from latchwork.modules.conv import BasicConv

Linear = tuple[int, int, int]  # rows, width of the input, width of the output


def linear_maps(model: MinMaxRNC_LM, rows: int, first_rows: int) -> list[Linear]:
    """Every linear map, with `first_rows` rows before the recurrence of the first layer and `rows` everywhere else."""
    maps = [(rows, model.head.in_features, model.head.out_features)]
    for number, layer in enumerate(model.backbone.layers):
        maps += layer_maps(layer, rows, rows if number else first_rows)
    return maps


def layer_maps(layer: Any, rows: int, rows_before: int) -> list[Linear]:
    """Those of a layer, with `rows_before` rows before its recurrence."""
    maps = []
    if isinstance(layer.conv, BasicConv):
        d_model, both = layer.conv.weight.shape
        maps.append((rows_before, both, d_model))
    for each in (layer.ffn.up, layer.ffn.down, layer.neuron.projection):
        maps.append((rows_before, each.in_features, each.out_features))
    return [*maps, (rows, layer.neuron.output.in_features, layer.neuron.output.out_features)]


class Products:
    """Call it to run them all."""

    def __init__(self, maps: list[Linear]) -> None:
        self.flops = sum(3 * 2 * n * a * b for n, a, b in maps)
        self.products: list[tuple[Tensor, Tensor, Tensor]] = []
        for (n, a, b), times in Counter(maps).items():
            u, w, grad = torch.randn(n, a), torch.randn(b, a), torch.randn(n, b)
            three = [
                (u, w.t(), torch.zeros(n, b)),
                (grad, w, torch.zeros(n, a)),
                (grad.t(), u, torch.zeros(b, a)),
            ]
            self.products += times * three

    def __call__(self) -> None:
        for left, right, out in self.products:
            torch.mm(left, right, out=out)


def bounds(model: MinMaxRNC_LM, tokens: Tensor) -> dict[str, Products]:
    """With all tokens in the first layer, and with its distinct pairs alone where our model takes those."""
    rows = tokens.numel()
    found = {"torch.mm alone, all tokens": Products(linear_maps(model, rows, rows))}
    if first_drives(model, tokens, None, None) is not None:
        before = torch.cat((torch.full_like(tokens[:, :1], model.vocab_size), tokens[:, :-1]), 1)
        every = rows // 2 >= model.vocab_size * (model.vocab_size + 1) + len(tokens)
        pairs = (
            model.vocab_size * (model.vocab_size + 1)
            if every
            else len(torch.stack((before, tokens)).flatten(1).unique(dim=1).T)
        )
        found[f"torch.mm alone, {pairs} pairs in layer 1"] = Products(linear_maps(model, rows, pairs))
    return found
