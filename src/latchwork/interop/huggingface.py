"""A finished run's model in the Hugging Face format, its tokenizer beside it."""

from __future__ import annotations

import os
from pathlib import Path

from latchwork.data.subwords import ENDS, Subwords, bytes_of_letters, tokenizers_library
from latchwork.data.tokenizers import Bytes, Characters, Tokenizer, load_tokenizer
from latchwork.files import write_text
from latchwork.load import load_model
from latchwork.models import MinMaxRNC_LM


def export_huggingface(model: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write what `AutoModelForCausalLM` and `AutoTokenizer` read; model: as `load_model` takes it, trained on text."""
    from latchwork.evaluation.sampling import find_tokenizer
    from latchwork.models.huggingface import to_huggingface

    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} must not exist, or be empty")
    found = load_model(model)
    if not isinstance(found, MinMaxRNC_LM):
        raise ValueError(f"{model} must hold a MinMax model to be exported; it holds a {type(found).__name__}")
    tokenizer = load_tokenizer(find_tokenizer(model))
    files = tokenizer_files(tokenizer)
    theirs = to_huggingface(found)
    if isinstance(tokenizer, Characters):
        theirs.config.read_end_as = max(0, tokenizer.alphabet.find("\n"))  # as `latchwork sample` begins a text
    theirs.config.eos_token_id = tokenizer.end  # where generate() stops
    theirs.generation_config.eos_token_id = tokenizer.end
    theirs.save_pretrained(out)
    for name, text in files.items():
        write_text(out / name, text)


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Names and contents of the files that `AutoTokenizer` reads."""
    if isinstance(tokenizer, Characters):
        tokenizer = _characters(tokenizer)
    elif isinstance(tokenizer, Bytes):
        tokenizer = _bytes(tokenizer)
    return {name: content.decode() for name, content in tokenizer.files().items()}


def _characters(tokenizer: Characters) -> Subwords:
    """One token a character, as the `tokenizers` library has it; then the end, which the model does not know."""
    library = tokenizers_library()
    vocabulary = {letter: number for number, letter in enumerate(tokenizer.alphabet)}
    theirs = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token=tokenizer.alphabet[0]))
    theirs.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(r"[\s\S]"), "isolated")
    theirs.decoder = library.decoders.Fuse()
    theirs.add_special_tokens([ENDS[0]])
    return Subwords(theirs.to_str(), ENDS[0])


def _bytes(tokenizer: Bytes) -> Subwords:
    """One token a byte, as the `tokenizers` library has it: byte-level BPE without merges; then the end."""
    library = tokenizers_library()
    theirs = library.Tokenizer(library.models.BPE(bytes_of_letters(), []))
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    theirs.decoder = library.decoders.ByteLevel()
    theirs.add_special_tokens([ENDS[0]])
    assert theirs.token_to_id(ENDS[0]) == tokenizer.end
    return Subwords(theirs.to_str(), ENDS[0])
