"""The one fast path to the best token: the last norm, the head and the choice in one operation.

`MinMaxRNC_LM.predict` is `forward` and then the largest logit. Where every part is as made and has no hooks, this runs
instead: ops/cross_entropy.py, `linear_best`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from latchwork.models.backbone import MinMaxRNC
from latchwork.modules.fast_layer import NORMS, epsilon_of
from latchwork.modules.linear import Linear, has_hooks
from latchwork.ops.cross_entropy import linear_best

if TYPE_CHECKING:
    from latchwork.models.language_model import MinMaxRNC_LM


def is_as_made(model: MinMaxRNC_LM) -> bool:
    """Whether a call of each part runs its forward and nothing else, and nothing is dropped."""
    norm, dropout, head = model.backbone.norm_postlayers, model.head_dropout, model.head
    bias: Tensor | None = head.bias
    return (
        type(model.backbone) is MinMaxRNC
        and type(norm) in NORMS
        and type(dropout) is nn.Dropout
        and not (dropout.training and dropout.p)
        and type(head) is Linear
        and bias is None
        and not has_hooks(model.backbone, norm, dropout, head)
    )


def best(model: MinMaxRNC_LM, y: Tensor) -> Tensor:
    """The best token (B, T) of y (B, T, d_model), which the last norm has yet to take."""
    norm: Any = model.backbone.norm_postlayers
    of_norm = getattr(norm, "weight", None), getattr(norm, "bias", None)
    found = linear_best(y.flatten(0, 1), model.head.weight, NORMS[type(norm)], epsilon_of(norm), *of_norm)
    return found.view(y.shape[:2])
