"""The language model for Hugging Face transformers: Auto classes, generate(), Trainer, lm_eval.

Importing this file registers both classes with AutoConfig and AutoModelForCausalLM. A saved folder also names them in
its config.json, so that `trust_remote_code=True` finds them where this file was not imported.
"""

# transformers annotates its classes in part, and for callers rather than for subclasses.
# mypy: disable-error-code="arg-type, misc, no-untyped-call, override", disallow-subclassing-any=False

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from latchwork.models.backbone import MinMaxRNC
from latchwork.models.config import MOST_TOKENS, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.models.generation import check_best
from latchwork.models.huggingface_folder import check_folder, weight_files
from latchwork.models.language_model import MinMaxRNC_LM
from latchwork.modules.init import small_init_init_
from latchwork.modules.state import State
from latchwork.tensor_files import read_tensors, write_tensors

try:
    import transformers
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        GenerationConfig,
        GenerationMixin,
        LogitsProcessor,
        LogitsProcessorList,
        PreTrainedConfig,
        PreTrainedModel,
    )
    from transformers.utils.generic import ModelOutput
except ImportError as error:
    raise ImportError("latchwork.models.huggingface needs transformers: pip install 'latchwork[hf]'") from error
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 13):  # whose beam search does not reorder our state
    raise ImportError(
        f"transformers must be 5.13 or later; got {transformers.__version__}: pip install 'latchwork[hf]'"
    )

# On an Apple GPU generate() asks a cache whether its last step can be taken back.
State.is_croppable = False  # type: ignore[attr-defined]

_BACKBONE = tuple(field.name for field in fields(MinMaxRNCConfig))
_AROUND = ("head_dropout", "tie_weights", "embedding_init")
_OURS = ("vocab_size", *_BACKBONE, *_AROUND, "use_cache", "read_end_as")
_THEIRS = {
    *vars(PreTrainedConfig()),
    *("model_type", "name_or_path", "torch_dtype", "num_labels", "output_attentions", "attn_implementation"),
    *("experts_implementation", "quantization_config", "tokenizer_class", "auto_map"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
}
_CODE = "modeling_minmaxrnc"  # the file that a saved folder has for trust_remote_code


class MinMaxRNCHFConfig(PreTrainedConfig):
    """vocab_size and the fields of MinMaxRNCConfig and MinMaxRNCLMConfig, as transformers keeps them.

    hidden_size, num_hidden_layers and tie_word_embeddings are other names of d_model, n_layers and tie_weights.
    use_cache: whether the state is returned where a call does not say. read_end_as: programs ask for a token that ends
    a text. Where the vocabulary has none, the number vocab_size is that token: it is read as this one, and never
    predicted. What PreTrainedConfig itself knows may be given too; any other key is an error.

    >>> MinMaxRNCHFConfig(vocab_size=8, d_model=90, n_layers=2, d_state=40, conv_type="bsaic")
    Traceback (most recent call last):
    ...
    ValueError: conv_type must be one of 'basic', 'gated'; got 'bsaic'
    """

    model_type = "minmaxrnc"
    has_no_defaults_at_init = True
    attribute_map = {  # noqa: RUF012 - transformers declares it
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "tie_word_embeddings": "tie_weights",
    }
    keys_to_ignore_at_inference = ["state"]  # noqa: RUF012
    __eq__ = PreTrainedConfig.__eq__  # else the class is compared without our fields
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, *, vocab_size: int, use_cache: bool = True, read_end_as: int | None = None, **values: Any
    ) -> None:
        for alias, name in self.attribute_map.items():
            if alias in values:
                if name in values:
                    raise ValueError(f"{alias} is another name of {name}: give one of them")
                values[name] = values.pop(alias)
        ours = {name: values.pop(name) for name in _BACKBONE + _AROUND if name in values}
        for key in values:
            if key not in _THEIRS:
                near = get_close_matches(key, _OURS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else "."
                raise ValueError(f"{type(self).__name__} has no field {key!r}{hint} It has {', '.join(_OURS)}")
        if type(vocab_size) is not int or not 1 <= vocab_size <= MOST_TOKENS:
            raise ValueError(f"vocab_size must be an integer from 1 to {MOST_TOKENS:,}; got {vocab_size!r:.80}")
        if values.get("model_type", self.model_type) != self.model_type:
            raise ValueError(f"model_type must be {self.model_type!r}; got {values['model_type']!r:.80}")
        for name in ("dtype", "torch_dtype"):
            dtype = getattr(torch, values[name], None) if isinstance(values.get(name), str) else values.get(name)
            if name in values and values[name] is not None and not isinstance(dtype, torch.dtype):
                raise ValueError(f"{name} must be one of torch's, or None; got {values[name]!r:.80}")
        if read_end_as is not None and (type(read_end_as) is not int or not 0 <= read_end_as < vocab_size):
            raise ValueError(f"read_end_as must be a token, 0 to {vocab_size - 1}, or None; got {read_end_as!r:.80}")
        super().__init__(**values)
        self.vocab_size, self.use_cache, self.read_end_as = vocab_size, use_cache, read_end_as
        config = _join(ours)
        for name, value in {**config.backbone.to_dict(), **{each: getattr(config, each) for each in _AROUND}}.items():
            setattr(self, name, value)
        self.auto_map = {
            "AutoConfig": f"{_CODE}.{type(self).__name__}",
            "AutoModelForCausalLM": f"{_CODE}.MinMaxRNCForCausalLM",
        }

    def to_latchwork(self) -> MinMaxRNCLMConfig:
        """Our configuration, checked again."""
        return _join({name: getattr(self, name) for name in _BACKBONE + _AROUND})

    @classmethod
    def from_latchwork(cls, vocab_size: int, config: MinMaxRNCLMConfig, **values: Any) -> MinMaxRNCHFConfig:
        """From ours, what the language model says in place of its backbone put into the backbone."""
        around = {name: getattr(config, name) for name in _AROUND}
        return cls(vocab_size=vocab_size, **config.resolved_backbone.to_dict(), **around, **values)

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **options: Any
    ) -> None:
        """As in transformers, with the small file that trust_remote_code runs: it imports latchwork."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{_CODE}.py").write_text(
            '"""For trust_remote_code: the classes are those of latchwork, pip install \'latchwork[hf]\'."""\n\n'
            f"from latchwork.models.huggingface import MinMaxRNCForCausalLM, {type(self).__name__}  # noqa: F401\n"
        )
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **options)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Do nothing: a folder need not carry a copy of this file, since `save_pretrained` refers to latchwork."""


def _join(values: dict[str, Any]) -> MinMaxRNCLMConfig:
    backbone = MinMaxRNCConfig(**{name: value for name, value in values.items() if name in _BACKBONE})
    return MinMaxRNCLMConfig(backbone=backbone, **{name: values[name] for name in _AROUND if name in values})


@dataclass
class MinMaxRNCOutput(ModelOutput):
    """loss: (), if labels were given. logits: (B, T, vocab_size). state: that after the last step, if use_cache.

    hidden_states: n_layers + 1 times (B, T, d_model), the input of each layer and what the head is given.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    state: State | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class _Alignment(NamedTuple):
    """A padded batch with the real tokens of each row moved to its right end, in order.

    order: (B, T), which step comes where. padding: (B, T), true left of the real tokens; reset: (B, T), true at the
    first of them. back: (B, T), where each step finds its output; a masked one has that of the last real one before.
    """

    order: Tensor
    padding: Tensor
    reset: Tensor
    back: Tensor

    def apply(self, inputs: Tensor) -> Tensor:
        """inputs (B, T) or (B, T, d) in the new order, zero where they are padding."""
        extra = [1] * (inputs.dim() - 2)
        moved = torch.take_along_dim(inputs, self.order.view(*self.order.shape, *extra), 1)
        return moved.masked_fill(self.padding.view(*self.padding.shape, *extra), 0)

    def undo(self, y: Tensor) -> Tensor:
        """y (B, T) or (B, T, d) in the old order."""
        return torch.take_along_dim(y, self.back.view(*self.back.shape, *[1] * (y.dim() - 2)), 1)

    def undo_state(self, state: State, initial: State) -> State:
        """The state of each row, which for a row without any real token is the initial one."""
        empty = self.padding.all(1, keepdim=True)
        return State(torch.where(empty, initial.conv, state.conv), torch.where(empty, initial.x, state.x))


def _align(mask: Tensor) -> _Alignment:
    """Of mask (B, T), true at the real tokens.

    >>> alignment = _align(torch.tensor([[True, False, True, True, False]]))
    >>> alignment.order.tolist(), alignment.back.tolist(), alignment.reset.int().tolist()
    ([[1, 4, 0, 2, 3]], [[2, 2, 3, 4, 4]], [[0, 0, 1, 0, 0]])
    """
    begin = mask.shape[1] - mask.sum(1, keepdim=True)
    steps = torch.arange(mask.shape[1], device=mask.device)
    back = begin + mask.cumsum(1) - 1  # before the first real token: a step of padding, which saw nothing but padding
    return _Alignment(mask.byte().argsort(dim=1, stable=True), steps < begin, steps == begin, back)


class _Finite(LogitsProcessor):
    """Refuses to choose among logits that hold a NaN."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores as they are."""
        check_best(scores.amax(-1))
        return scores


class MinMaxRNCForCausalLM(PreTrainedModel, GenerationMixin):
    """MinMaxRNC_LM, here `lm`, as transformers' models are called.

    The cache of generate() is our State, under the name `state`. A masked token is skipped exactly: neither recurrence
    nor convolution see it, wherever it stands, and its output is that of the last real token before it.
    """

    config_class = MinMaxRNCHFConfig
    base_model_prefix = "lm"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True  # Trainer's word for num_items_in_batch
    _is_stateful = True  # a step cannot be taken back, so assisted generation is refused
    _supports_context_parallel = False
    _no_split_modules = ["MinMaxRNC"]  # noqa: RUF012 - its state is one tensor for all layers
    _tied_weights_keys = {"lm.head.weight": "lm.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: MinMaxRNCHFConfig) -> None:
        super().__init__(config)
        self.lm = MinMaxRNC_LM(config.vocab_size, config.to_latchwork())
        for tensor in self.lm.state_dict(keep_vars=True).values():
            tensor._is_hf_initialized = not tensor.is_meta
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        """As in transformers. Weights in a folder that have changed since `save_pretrained` are an error."""
        if pretrained_model_name_or_path is not None and Path(pretrained_model_name_or_path).is_dir():
            any_size = bool(options.get("ignore_mismatched_sizes"))
            read = MinMaxRNCHFConfig.from_dict
            check_folder(Path(pretrained_model_name_or_path), options.get("config"), read, any_size)
        return super().from_pretrained(pretrained_model_name_or_path, *args, **options)

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], is_main_process: bool = True, **options: Any
    ) -> None:
        """As in transformers; the weights are then given their SHA-256, which `from_pretrained` looks at."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **options)
        for path in weight_files(Path(save_directory)) if is_main_process else ():
            write_tensors(path, *read_tensors(path))

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
        logits_to_keep: of the last so many steps, 0 for all; or of the steps (P,). use_cache: None is config.use_cache,
        and in training False.
        """
        if output_attentions:
            raise ValueError("output_attentions must be False: there is no attention")
        inputs = self._inputs(input_ids, inputs_embeds)
        _check_labels(labels, inputs, logits_to_keep)
        alignment = _read_mask(attention_mask, inputs, state)
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

    def _inputs(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if inputs_embeds is None and input_ids is not None:
            if input_ids.dim() != 2 or input_ids.dtype not in (torch.int64, torch.int32):
                what = f"{input_ids.dtype} {tuple(input_ids.shape)}"
                raise ValueError(f"input_ids must be int64 or int32 (B, T); got {what}")
            if self.config.read_end_as is not None:
                return input_ids.masked_fill(input_ids == self.config.vocab_size, self.config.read_end_as)
            return input_ids
        if inputs_embeds is not None and input_ids is None:
            if inputs_embeds.dim() != 3 or inputs_embeds.shape[-1] != self.config.d_model:
                what = f"(B, T, d_model = {self.config.d_model}); got {tuple(inputs_embeds.shape)}"
                raise ValueError(f"inputs_embeds must be {what}")
            return inputs_embeds
        raise ValueError("give either input_ids or inputs_embeds, and not both")

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

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Draw what a checkpoint lacks as in a new model; a new model has initialised itself."""
        tensors = self.lm.state_dict(keep_vars=True)
        lacking = [name for name, each in tensors.items() if not getattr(each, "_is_hf_initialized", False)]
        if lacking:
            new = MinMaxRNC_LM(self.lm.vocab_size, self.lm.config).state_dict()
            for name in lacking:
                tensors[name].copy_(new[name])

    def _init_weights(self, module: nn.Module) -> None:
        """The embedding or head that `resize_token_embeddings` makes, before it copies the old one into it."""
        if isinstance(module, (nn.Embedding, nn.Linear)):
            small_init_init_(module.weight, self.config.d_model)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModelForCausalLM") -> None:
        """Do nothing: a folder need not carry a copy of this file, since `save_pretrained` refers to latchwork."""


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


def _read_mask(mask: Tensor | None, inputs: Tensor, state: State | None) -> _Alignment | None:
    """How to skip the padding of inputs (B, T, ...), or None where there is none."""
    if mask is None:
        return None
    B, T = inputs.shape[:2]
    if mask.dim() != 2 or len(mask) != B or (mask.shape[1] != T if state is None else mask.shape[1] < T):
        longer = "" if state is None else ", or longer with what came before"
        raise ValueError(f"attention_mask must be (B, T) = {(B, T)}{longer}; got {tuple(mask.shape)}")
    mask = mask[:, mask.shape[1] - T :].to(inputs.device).bool()
    if mask.all():
        return None
    if state is not None:
        raise ValueError("attention_mask must be 1 at all new tokens where a state is given: skip padding before that")
    return _align(mask)


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
