"""The language model and its classifiers for Hugging Face transformers: Auto classes, generate(), Trainer, lm_eval.

Importing this file registers the classes with transformers' Auto classes. A saved folder also names them in its
config.json, so that `trust_remote_code=True` finds them where this file was not imported.
"""

# transformers annotates its classes in part, and for callers rather than for subclasses.
# mypy: disable-error-code="arg-type, misc, no-untyped-call, override", disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

try:
    import transformers
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        GenerationConfig,
        GenerationMixin,
        LogitsProcessor,
        LogitsProcessorList,
    )
    from transformers.utils.generic import ModelOutput
except ImportError as error:
    raise ImportError("latchwork.models.huggingface needs transformers: pip install 'latchwork[hf]'") from error
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 13):  # whose beam search does not reorder our state
    raise ImportError(
        f"transformers must be 5.13 or later; got {transformers.__version__}: pip install 'latchwork[hf]'"
    )

from latchwork.models.backbone import MinMaxRNC
from latchwork.models.generation import check_best
from latchwork.models.huggingface_base import Pretrained
from latchwork.models.huggingface_classification import (
    MinMaxRNCForSequenceClassification,
    MinMaxRNCForTokenClassification,
)
from latchwork.models.huggingface_config import MinMaxRNCHFConfig
from latchwork.models.huggingface_padding import read_mask
from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.state import State

__all__ = [
    "MinMaxRNCForCausalLM",
    "MinMaxRNCForSequenceClassification",
    "MinMaxRNCForTokenClassification",
    "MinMaxRNCHFConfig",
    "MinMaxRNCOutput",
    "to_huggingface",
]

# On an Apple GPU generate() asks a cache whether its last step can be taken back.
State.is_croppable = False  # type: ignore[attr-defined]


@dataclass
class MinMaxRNCOutput(ModelOutput):
    """loss: (), if labels were given. logits: (B, T, vocab_size). state: that after the last step, if use_cache.

    hidden_states: n_layers + 1 times (B, T, d_model), the input of each layer and what the head is given.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    state: State | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class _Finite(LogitsProcessor):
    """Refuses to choose among logits that hold a NaN."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores as they are."""
        check_best(scores.amax(-1))
        return scores


class MinMaxRNCForCausalLM(Pretrained, GenerationMixin):
    """MinMaxRNC_LM, here `lm`, as transformers' models are called.

    The cache of generate() is our State, under the name `state`. A masked token is skipped exactly: neither recurrence
    nor convolution see it, wherever it stands, and its output is that of the last real token before it.
    """

    accepts_loss_kwargs = True  # Trainer's word for num_items_in_batch
    _is_stateful = True  # a step cannot be taken back, so assisted generation is refused
    _tied_weights_keys = {"lm.head.weight": "lm.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: MinMaxRNCHFConfig) -> None:
        super().__init__(config)
        self.lm = MinMaxRNC_LM(config.vocab_size, config.to_latchwork())
        self.finish()

    def to_latchwork(self) -> MinMaxRNC_LM:
        """Our model: the very one inside, so that the weights are shared."""
        return self.lm

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: State | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        reset: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> MinMaxRNCOutput | tuple[Any, ...]:
        """Logits (B, T, vocab_size), and the state after the last real token if use_cache.

        input_ids (B, T), or inputs_embeds (B, T, d_model). attention_mask: (B, T), zero at the tokens to skip; where a
        state is given its last T columns count, as in generate(), and none of them may be zero. reset: (B, T) bool; a
        sequence begins there and nothing before it is seen, for sequences packed into one row without padding.
        labels: (B, T), as a rule input_ids; the logits of one step are compared with the label of the next, -100 being
        left out. The loss is the mean, or the sum over num_items_in_batch; 0 if all are left out, as in MinMaxRNC_LM.
        logits_to_keep: of this many last steps, 0 for all; or of the steps (P,). use_cache: None is config.use_cache,
        and in training False.
        """
        if output_attentions:
            raise ValueError("output_attentions must be False: there is no attention")
        inputs = self.read_inputs(input_ids, inputs_embeds)
        _check_labels(labels, inputs, logits_to_keep)
        alignment = read_mask(attention_mask, inputs, state)
        if alignment is not None:
            if reset is not None:
                raise ValueError("reset is for rows without padding: attention_mask must be None or 1 everywhere")
            inputs, reset = alignment.apply(inputs), alignment.reset
        if output_hidden_states is None:
            output_hidden_states = bool(self.config.output_hidden_states)
        with _layer_inputs(self.lm.backbone, output_hidden_states) as hidden:
            y, after = self._run(inputs, state, reset)
        hidden.append(y)
        if alignment is not None:
            hidden = [alignment.undo(each) for each in hidden]
            after = alignment.undo_state(after, self.lm.initial_state(len(inputs)))
        places = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm.head(self.lm.head_dropout(hidden[-1][:, places]))
        loss = None
        if labels is not None:
            labels = labels.long()
            if self.config.read_end_as is not None:
                labels = labels.masked_fill(labels == self.config.vocab_size, -100)
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=logits.shape[-1], num_items_in_batch=num_items_in_batch
            )
            loss = torch.where((labels[:, 1:] != -100).any().to(loss.device), loss, 0)
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        output = MinMaxRNCOutput(
            loss=loss,
            logits=logits,
            state=after if use_cache else None,
            hidden_states=tuple(hidden) if output_hidden_states else None,
        )
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _run(self, inputs: Tensor, state: State | None, reset: Tensor | None) -> tuple[Tensor, State]:
        if inputs.dim() == 3:
            y, after = self.lm.backbone(inputs, state, reset=reset)
            return y, after
        return self.lm.hidden(inputs, state, reset=reset)

    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        logits_processor: LogitsProcessorList | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """As in transformers; logits that hold a NaN are an error."""
        processors = LogitsProcessorList([_Finite(), *(logits_processor or [])])
        return super().generate(inputs, generation_config, processors, *args, **kwargs)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        state: State | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        is_first_iteration: bool | None = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """As in transformers; what is generated is real, so that after the prompt the state needs no mask."""
        if state is not None and not is_first_iteration:
            attention_mask = None
        inputs: dict[str, Any] = super().prepare_inputs_for_generation(
            input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            is_first_iteration=is_first_iteration,
            **kwargs,
        )
        return {**inputs, "state": state}

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: Tensor | None = None,
        state: State | None = None,
        **options: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        input_ids, options = super()._expand_inputs_for_generation(
            expand_size, is_encoder_decoder, input_ids, **options
        )
        if state is not None:
            options["state"] = state.repeat(expand_size)
        return input_ids, options

    @staticmethod
    def _reorder_cache(state: State, beam_idx: Tensor) -> State:
        return state.reorder(beam_idx)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # generate() makes no cache of keys and values; the first call returns the state

    def init_continuous_batching(self, *_: Any, **__: Any) -> None:
        """Refuse: transformers batches continuously by paging keys and values."""
        raise NotImplementedError("continuous batching needs keys and values, and there are none: use generate()")

    def get_input_embeddings(self) -> nn.Embedding:
        """(vocab_size, d_model)."""
        return self.lm.embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Take another embedding, of any vocabulary."""
        self.lm.embedding, self.lm.vocab_size = value, value.num_embeddings

    def get_output_embeddings(self) -> nn.Linear:
        """The head, d_model to vocab_size."""
        return self.lm.head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Take the weight of another head, which must have no bias."""
        if getattr(new_embeddings, "bias", None) is not None:
            raise ValueError("new_embeddings must have no bias, as the head has none")
        self.lm.head.weight, self.lm.head.out_features = new_embeddings.weight, new_embeddings.out_features


def to_huggingface(model: MinMaxRNC_LM) -> MinMaxRNCForCausalLM:
    """The same model, weights shared, as transformers wants it; `to_latchwork` is the way back."""
    dtype = model.embedding.weight.dtype
    if not dtype.is_floating_point:
        raise TypeError(f"model must have floating-point weights; got {dtype}")
    config = MinMaxRNCHFConfig.from_latchwork(model.vocab_size, model.config, dtype=dtype)
    with torch.device("meta"):
        new = MinMaxRNCForCausalLM(config)
    new.lm = model
    new.train(model.training)
    return new


def _check_labels(labels: Tensor | None, inputs: Tensor, logits_to_keep: int | Tensor) -> None:
    if isinstance(logits_to_keep, Tensor):
        if logits_to_keep.dim() != 1:
            raise ValueError(f"logits_to_keep must be an integer or (P,); got {tuple(logits_to_keep.shape)}")
    elif logits_to_keep < 0:
        raise ValueError(f"logits_to_keep must be at least 0; got {logits_to_keep}")
    if labels is None:
        return
    if labels.shape != inputs.shape[:2] or labels.dtype not in (torch.int64, torch.int32):
        what = f"{labels.dtype} {tuple(labels.shape)}"
        raise ValueError(f"labels must be int64 or int32 (B, T) = {tuple(inputs.shape[:2])}; got {what}")
    if isinstance(logits_to_keep, Tensor) or logits_to_keep:
        raise ValueError("labels need all logits: logits_to_keep must be 0")


@contextmanager
def _layer_inputs(backbone: MinMaxRNC, wanted: bool) -> Iterator[list[Tensor]]:
    """A list that fills with the input of each layer while the backbone runs, if wanted."""
    inputs: list[Tensor] = []
    layers = list(backbone.layers) if wanted else []
    hooks = [each.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for each in layers]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


AutoConfig.register(MinMaxRNCHFConfig.model_type, MinMaxRNCHFConfig, exist_ok=True)
AutoModelForCausalLM.register(MinMaxRNCHFConfig, MinMaxRNCForCausalLM, exist_ok=True)
AutoModelForSequenceClassification.register(MinMaxRNCHFConfig, MinMaxRNCForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(MinMaxRNCHFConfig, MinMaxRNCForTokenClassification, exist_ok=True)
