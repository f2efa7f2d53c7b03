"""What the models for Hugging Face transformers share: folders, embeddings, inputs and new weights."""

# transformers annotates its classes in part, and for callers rather than for subclasses.
# mypy: disable-error-code="arg-type, misc, no-untyped-call, override", disallow-subclassing-any=False

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from latchwork.models.huggingface_config import MinMaxRNCHFConfig
from latchwork.models.huggingface_folder import check_folder, weight_files
from latchwork.modules.init import small_init_init_
from latchwork.tensor_files import read_tensors, write_tensors


class Pretrained(PreTrainedModel):
    """A model with `lm`, which has an embedding and a backbone: a MinMaxRNC_LM, or one without its head."""

    config_class = MinMaxRNCHFConfig
    base_model_prefix = "lm"
    supports_gradient_checkpointing = True
    _supports_context_parallel = False
    _no_split_modules = ["MinMaxRNC"]  # noqa: RUF012 - its state is one tensor for all layers

    def finish(self) -> None:
        """The end of every __init__: it tells transformers that the model has initialised itself."""
        for tensor in self.state_dict(keep_vars=True).values():
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

    def read_inputs(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """The one that is given, checked."""
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

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Draw what a checkpoint lacks as in a new model; a new model has initialised itself."""
        tensors = self.state_dict(keep_vars=True)
        lacking = [name for name, each in tensors.items() if not getattr(each, "_is_hf_initialized", False)]
        if lacking:
            new = type(self)(self.config).state_dict()
            for name in lacking:
                tensors[name].copy_(new[name])

    def _init_weights(self, module: nn.Module) -> None:
        """The embedding or head that `resize_token_embeddings` makes, before it copies the old one into it."""
        if isinstance(module, (nn.Embedding, nn.Linear)):
            small_init_init_(module.weight, self.config.d_model)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = None) -> None:
        """Do nothing: a folder need not carry a copy of this file, since `save_pretrained` refers to latchwork."""
