"""Classes for whole sequences and for each token, on the backbone of the language model."""

# transformers annotates its classes in part, and for callers rather than for subclasses.
# mypy: disable-error-code="arg-type, misc, no-untyped-call, override", disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput, TokenClassifierOutput

from latchwork.models.backbone import MinMaxRNC
from latchwork.models.huggingface_base import Pretrained
from latchwork.models.huggingface_config import MinMaxRNCHFConfig
from latchwork.models.huggingface_padding import read_mask
from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.init import small_init_init_
from latchwork.modules.linear import Linear


class Headless(nn.Module):
    """Embedding and backbone under the names that MinMaxRNC_LM gives them, so that its weights can be loaded."""

    def __init__(self, config: MinMaxRNCHFConfig) -> None:
        super().__init__()
        lm = MinMaxRNC_LM(config.vocab_size, config.to_latchwork())
        self.embedding: nn.Embedding = lm.embedding
        self.backbone: MinMaxRNC = lm.backbone


class _Classifier(Pretrained):
    """Embedding, backbone, dropout, a linear map to config.num_labels."""

    each_token: bool  # whether every token has logits, or the last real one alone
    loss: Callable[[Tensor, Tensor, Tensor | int | None], Tensor]

    def __init__(self, config: MinMaxRNCHFConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.lm = Headless(config)
        self.dropout = nn.Dropout(config.head_dropout)
        self.score = Linear(config.d_model, config.num_labels)
        small_init_init_(self.score.weight, config.d_model)
        nn.init.zeros_(self.score.bias)
        self.finish()

    def get_input_embeddings(self) -> nn.Embedding:
        """(vocab_size, d_model)."""
        return self.lm.embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Take another embedding, of any vocabulary."""
        self.lm.embedding = value

    def hidden(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """y (B, T, d_model) at each token, and (B, d_model) at the last real token of each row."""
        inputs = self.read_inputs(input_ids, inputs_embeds)
        alignment = read_mask(attention_mask, inputs, None)
        u = inputs if inputs_embeds is not None else self.lm.embedding(inputs)
        if alignment is None:
            y, _ = self.lm.backbone(u)
            return y, y[:, -1]
        y, _ = self.lm.backbone(alignment.apply(u), reset=alignment.reset)
        return alignment.undo(y), y[:, -1]  # the real tokens stand at the right end

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> SequenceClassifierOutput | TokenClassifierOutput | tuple[Any, ...]:
        """Logits, and the loss if there are labels; shapes as the class says, arguments as in MinMaxRNCForCausalLM."""
        y, last = self.hidden(input_ids, attention_mask, inputs_embeds)
        logits = self.score(self.dropout(y if self.each_token else last))
        loss = None if labels is None else self.loss(logits, labels, num_items_in_batch)
        output = (TokenClassifierOutput if self.each_token else SequenceClassifierOutput)(loss=loss, logits=logits)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()


class MinMaxRNCForSequenceClassification(_Classifier):
    """One answer for each sequence, read at its last real token: logits (B, num_labels).

    labels: (B,) classes, (B,) or (B, num_labels) numbers, or (B, num_labels) yes and no, by config.problem_type;
    where it is None, transformers' rule decides.
    """

    each_token = False

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
        """transformers' loss of config.problem_type."""
        if labels.shape[:1] != logits.shape[:1]:
            raise ValueError(f"labels must have B = {len(logits)} rows; got {tuple(labels.shape)}")
        loss: Tensor = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return loss


class MinMaxRNCForTokenClassification(_Classifier):
    """One answer for each token, which knows what came before it: logits (B, T, num_labels).

    labels: (B, T) classes, -100 being left out.
    """

    each_token = True
    accepts_loss_kwargs = True  # Trainer's word for num_items_in_batch

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
        """The mean over the labels that are not left out, or their sum over num_items_in_batch; 0 if there are none."""
        if labels.shape != logits.shape[:2]:
            raise ValueError(f"labels must be (B, T) = {tuple(logits.shape[:2])}; got {tuple(labels.shape)}")
        loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
        return torch.where((labels != -100).any().to(loss.device), loss, 0)
