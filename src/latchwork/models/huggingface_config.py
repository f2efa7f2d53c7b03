"""The configuration of the models for Hugging Face transformers."""

# transformers annotates its classes in part, and for callers rather than for subclasses.
# mypy: disable-error-code="arg-type, misc, no-untyped-call, override", disallow-subclassing-any=False

from __future__ import annotations

import os
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig

from latchwork.models.config import MOST_TOKENS, MinMaxRNCConfig, MinMaxRNCLMConfig

_BACKBONE = tuple(field.name for field in fields(MinMaxRNCConfig))
_AROUND = ("head_dropout", "tie_weights", "embedding_init")
_OURS = ("vocab_size", *_BACKBONE, *_AROUND, "use_cache", "read_end_as")
_THEIRS = {
    *vars(PreTrainedConfig()),
    *("model_type", "name_or_path", "torch_dtype", "num_labels", "output_attentions", "attn_implementation"),
    *("experts_implementation", "quantization_config", "tokenizer_class", "auto_map"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
}
KINDS = ("ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
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
        self.auto_map = {"AutoConfig": f"{_CODE}.{type(self).__name__}"}
        self.auto_map |= {f"AutoModel{kind}": f"{_CODE}.MinMaxRNC{kind}" for kind in KINDS}

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
        names = [*(f"MinMaxRNC{kind}" for kind in KINDS), type(self).__name__]
        (folder / f"{_CODE}.py").write_text(
            '"""For trust_remote_code: the classes are those of latchwork, pip install \'latchwork[hf]\'."""\n\n'
            f"from latchwork.models.huggingface import {', '.join(names)}  # noqa: F401\n"
        )
        super().save_pretrained(save_directory, push_to_hub=push_to_hub, **options)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Do nothing: a folder need not carry a copy of this file, since `save_pretrained` refers to latchwork."""


def _join(values: dict[str, Any]) -> MinMaxRNCLMConfig:
    backbone = MinMaxRNCConfig(**{name: value for name, value in values.items() if name in _BACKBONE})
    return MinMaxRNCLMConfig(backbone=backbone, **{name: values[name] for name in _AROUND if name in values})
