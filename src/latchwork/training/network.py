"""A model and its loss as one module, which is what torch.compile, DDP and FSDP take."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from latchwork.models import MinMaxRNC_LM
from latchwork.ops.cross_entropy import mean_cross_entropy


class ModelWithLoss(nn.Module):
    """Tokens and targets to their mean loss, and the state to go on from, cut from the graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor, state: Any = None, reset: Tensor | None = None) -> Any:
        """tokens, targets: (B, T), a target of -100 is left out. state, reset: for ours alone."""
        if isinstance(self.model, MinMaxRNC_LM):
            loss, after = self.model.loss(tokens, targets, state, reset=reset)
            return loss, after.detach()
        logits = self.model(tokens)[0]
        return mean_cross_entropy(logits.flatten(0, 1), targets.flatten()), None

    def layers(self) -> list[nn.Module]:
        """The layers, where each is called as a module: FSDP then holds one at a time."""
        if isinstance(self.model, MinMaxRNC_LM):
            return list(self.model.backbone.layers)
        from latchwork.baselines.transformer import Transformer

        return list(self.model.layers) if isinstance(self.model, Transformer) else []
