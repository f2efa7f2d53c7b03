"""Choices further apart: where rounding decides between two logits of a choice, a proof is unknown.

Training ends when the answers are right. It leaves near ties in choices that few words depend on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.models import MinMaxRNC_LM
from latchwork.modules.cells import TransformationCell
from latchwork.modules.cells.choice import ChoiceCell
from latchwork.modules.layer import MinMaxLayer

GAP, STEPS = 2.0, 500


@torch.no_grad()
def settle_choices(model: MinMaxRNC_LM, tokens: Tensor, gap: float = GAP) -> int:
    """Move the logits of choices apart, in place; returns how many entries of units were moved.

    Every choice that the network makes on these words, tokens (B, T), stays what it is, and with it every state and
    every answer. Only the projection of each layer changes, entry by entry: until, on these words, the logit chosen
    exceeds the others by `gap`. Where 0 would go, in units that send levels, does not matter. For layers of one cell.
    """
    moved = 0
    u = model.embedding(tokens)
    for layer in model.backbone.layers:
        assert isinstance(layer, MinMaxLayer)
        (cell,) = layer.neuron.cells
        if not isinstance(cell, ChoiceCell):
            raise TypeError(f"model must have units that choose; got {type(cell).__name__}")
        moved += _settle(layer, cell, u, gap)
        u, _ = layer(u)
    return moved


def _settle(layer: MinMaxLayer, cell: ChoiceCell, u: Tensor, gap: float) -> int:
    projection, start = layer.neuron.projection, layer.neuron.start()
    x = layer.before_neuron(u)[0].flatten(0, 1).double()
    x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    z = layer.drive(u)[..., : cell.width]
    counts = torch.ones(*z.shape[:2], cell.size, dtype=torch.bool)
    if isinstance(cell, TransformationCell):  # where there was a level, before the step
        counts[:, 0], counts[:, 1:] = start > 0, cell(z, start)[:, :-1] > 0
    moved = 0
    for entry, of_entry in enumerate(counts.flatten(0, 1).unbind(1)):
        rows = _rows(cell, entry)
        weight = torch.cat([projection.weight[rows], projection.bias[rows, None]], 1).double()
        found = separate(x[of_entry], weight, gap)
        if found is not None:
            projection.weight[rows], projection.bias[rows] = found[:, :-1].float(), found[:, -1].float()
            moved += 1
    return moved


def _rows(cell: ChoiceCell, entry: int) -> Tensor:
    """The rows of the projection that are the logits of an entry."""
    rows = torch.arange(entry * cell.degree, (entry + 1) * cell.degree)
    takes = cell.width > cell.size * cell.degree
    return torch.cat([rows, torch.tensor([cell.size * cell.degree + entry])]) if takes else rows


def separate(x: Tensor, weight: Tensor, gap: float) -> Tensor | None:
    """Weights (K, d) whose largest logit of each row of x (M, d) is the same, and by `gap` the largest; else None.

    None where it is so already, or where none is found. Each step goes down the sum of what is missing, as far as
    would make it 0 if that were linear (Polyak's step).
    """
    choice = (x @ weight.T).argmax(1, keepdim=True)
    found = weight.clone()
    for step in range(STEPS):
        z = x @ found.T
        other = z.scatter(1, choice, -torch.inf).argmax(1, keepdim=True)
        missing = (gap + z.gather(1, other) - z.gather(1, choice)).clamp(min=0)
        if not bool(missing.any()):
            return found if step else None
        sign = torch.zeros_like(z).scatter_(1, choice, -1.0).scatter_(1, other, 1.0) * (missing > 0)
        slope = sign.T @ x
        found -= 1.1 * missing.sum() / slope.square().sum() * slope
    z = x @ found.T
    better = bool((z.argmax(1, keepdim=True) == choice).all())
    return found if better else None
