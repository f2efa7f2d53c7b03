"""A finished run's model in the Hugging Face format, its tokenizer beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from latchwork.files import write_text
from latchwork.models import MinMaxRNC_LM
from latchwork.pretraining.corpus import TOKENIZER
from latchwork.pretraining.model import load_model
from latchwork.pretraining.subwords import CONFIG, tokenizers_library
from latchwork.pretraining.tokenizers import SUBWORDS, Characters, Tokenizer, load_tokenizer


def export_huggingface(model: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write what `AutoModelForCausalLM` and `AutoTokenizer` read; model: the folder `model` of a run."""
    from latchwork.models.huggingface import to_huggingface

    folder, out = Path(model), Path(out)
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} must not exist, or be empty")
    found = load_model(folder)
    if not isinstance(found, MinMaxRNC_LM):
        raise ValueError(f"{folder} must hold a MinMax model to be exported; it holds a {type(found).__name__}")
    tokenizer = load_tokenizer(folder / TOKENIZER)
    files = tokenizer_files(tokenizer)
    theirs = to_huggingface(found)
    theirs.config.eos_token_id = tokenizer.end  # where generate() stops
    theirs.generation_config.eos_token_id = tokenizer.end
    theirs.save_pretrained(out)
    for name, text in files.items():
        write_text(out / name, text)


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Names and contents of the files that `AutoTokenizer` reads."""
    if isinstance(tokenizer, Characters):
        files = {SUBWORDS: _characters(tokenizer)}
    elif tokenizer.kind == "subwords":
        files = {name: content.decode() for name, content in tokenizer.files().items()}
    else:
        raise ValueError(f"the tokenizer must be one of subwords or characters to be exported; it is {tokenizer.kind}")
    values: dict[str, Any] = json.loads(files.get(CONFIG, "{}"))
    return {**files, CONFIG: json.dumps({**values, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=1) + "\n"}


def _characters(tokenizer: Characters) -> str:
    """One token a character, as the `tokenizers` library writes it."""
    library = tokenizers_library()
    vocabulary = {letter: number for number, letter in enumerate(tokenizer.alphabet)}
    theirs = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token=tokenizer.alphabet[0]))
    theirs.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(r"[\s\S]"), "isolated")
    theirs.decoder = library.decoders.Fuse()
    content: str = theirs.to_str()
    return content
