"""Weights in 8 bits for decoding, which is bound by reading them."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.conv import BasicConv, edges, shift
from latchwork.modules.linear import Linear
from latchwork.ops.matvec import int8_linear


def round_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight (outputs, inputs) as int8 times a scale (outputs, 1): each row in 255 steps from -max to max.

    >>> whole, scale = round_rows(torch.tensor([[1.0, -0.5, 0.0]]))
    >>> whole.tolist(), round(scale.item() * 127, 4)
    ([[127, -64, 0]], 1.0)
    """
    scale = weight.abs().amax(1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny) / 127
    return (weight / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    """A Linear whose weight is int8; what comes in and goes out is float."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        whole, scale = round_rows(weight.detach())
        self.register_buffer("weight", whole)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) to (..., outputs)."""
        return int8_linear(x, self.weight, self.scale, self.bias)


class Int8Embedding(nn.Module):
    """An Embedding whose rows are int8; it shares them with an Int8Linear that is the head."""

    def __init__(self, rows: Int8Linear) -> None:
        super().__init__()
        self.rows = rows
        self.num_embeddings = rows.weight.shape[0]

    @property
    def weight(self) -> Tensor:
        """The int8 rows; their device is what is asked of it."""
        return self.rows.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens to (..., d_model)."""
        return F.embedding(tokens, self.rows.weight) * F.embedding(tokens, self.rows.scale)


class Int8BasicConv(nn.Module):
    """A BasicConv whose weight is int8."""

    def __init__(self, conv: BasicConv) -> None:
        super().__init__()
        self.both = Int8Linear(conv.weight, conv.bias)

    def forward(self, u: Tensor, state: Tensor | None = None, *, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As BasicConv."""
        before, last = edges(u, state)
        return self.both(torch.cat((shift(u, before, reset), u), -1)), last


def quantize_int8(model: MinMaxRNC_LM) -> MinMaxRNC_LM:
    """A copy of model, in eval mode, with every matrix in 8 bits: a quarter of the memory, for generation on CPUs.

    A row of a matrix shares one scale; activations, biases, norms and states stay float. It cannot be trained or saved:
    save the model it is made from. Faster where few vectors are decoded at a time; with many, each matrix is made float
    on the way, at some cost.
    """
    if any(tensor.dtype != torch.float32 for tensor in model.state_dict().values()):
        raise ValueError("model must have float32 weights; call model.float() first")
    made = copy.deepcopy(model).eval().requires_grad_(False)
    head = Int8Linear(made.head.weight, None)
    made.embedding = Int8Embedding(head if made.config.tie_weights else Int8Linear(made.embedding.weight, None))  # type: ignore[assignment]
    made.head = head  # type: ignore[assignment]
    for part in list(made.backbone.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, Linear):
                setattr(part, name, Int8Linear(child.weight, child.bias))
            elif isinstance(child, BasicConv):
                setattr(part, name, Int8BasicConv(child))
    return made
