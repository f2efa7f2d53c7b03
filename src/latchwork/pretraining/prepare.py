"""Text to a corpus: read, split, tokenise, write. Cut off at any moment, the same call goes on."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from latchwork.files import read_json, write_json
from latchwork.pretraining.corpus import MANIFEST, SPLITS, TOKENIZER, Corpus, read_manifest
from latchwork.pretraining.dataset import parse_dataset
from latchwork.pretraining.documents import Source, TextFile, find_files
from latchwork.pretraining.encoding import Encoder
from latchwork.pretraining.make_tokenizer import make_tokenizer
from latchwork.pretraining.shards import SHARD_TOKENS, SplitWriter, dtype_for, finish_corpus, publish
from latchwork.pretraining.tokenizers import Characters, Tokenizer, describe_tokenizer, save_tokenizer

VALIDATION_DOCUMENTS = 5000
PLAN = ".plan.json"
Watch = Callable[[str, int, int | None], None]  # what is done, bytes of text so far, and in all where that is known


@dataclass(frozen=True)
class Survey:
    """What reading all sources once has shown."""

    sources: list[dict[str, Any]]  # name, documents, bytes and sha256 of the text of each
    characters: str  # all that occur, if asked for

    @property
    def documents(self) -> int:
        """In all sources."""
        return sum(each["documents"] for each in self.sources)

    @property
    def bytes(self) -> int:
        """In all sources."""
        return sum(each["bytes"] for each in self.sources)


def prepare(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    tokenizer: str | Tokenizer = "gpt2",
    *,
    validation_documents: int | None = None,
    validation_fraction: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    field: str = "text",
    separator: str | None = None,
    shard_tokens: int = SHARD_TOKENS,
    watch: Watch | None = None,
) -> Corpus:
    """Make the corpus `out` of the documents in sources: files, folders, patterns, or hf:NAME for a data set.

    tokenizer: one, or its name as `make_tokenizer` knows it, or "characters" for those that occur in the text.
    validation_documents: so many documents, drawn by seed, are held out; 5000 if nothing is said.
    validation_fraction: instead, of each document the last part, counted in characters.
    field, separator: see TextFile. jobs: processes; the result does not depend on them.

    The sources are read three times: to look at them all before anything is written, and for each split. A corpus
    appears under its name when it is whole. Until then it grows in a folder beside it, where finished shards are found
    again after an interruption; bad input removes that folder.
    """
    _check(validation_documents, validation_fraction, seed, shard_tokens)
    if validation_documents is None and validation_fraction is None:
        validation_documents = VALIDATION_DOCUMENTS
    out, watch = Path(out), watch or (lambda *_: None)
    if not out.name:
        raise ValueError(f"out must be a folder with a name; got {out}")
    found = find_sources(sources, field, separator)
    if not isinstance(tokenizer, str):
        chosen: Tokenizer | None = tokenizer
    else:
        chosen = None if tokenizer == "characters" else make_tokenizer(tokenizer)
    folder = out.with_name(f".{out.name}.partial")
    survey = _survey(found, folder / PLAN, chosen is None, watch)
    chosen = Characters(survey.characters) if chosen is None else chosen
    held = HeldOut(survey.documents, validation_documents, validation_fraction, seed)
    preparation = {
        "sources": survey.sources,
        "validation_documents": validation_documents,
        "validation_fraction": validation_fraction,
        "seed": seed if validation_fraction is None else None,
        "shard_tokens": shard_tokens,
    }
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        return _the_same(out, chosen, preparation)
    plan = {
        "stamps": [source.stamp() for source in found],
        "characters": survey.characters,
        "tokenizer": describe_tokenizer(chosen),
        "preparation": preparation,
    }
    _begin(folder, plan)
    try:
        _write(folder, out, found, survey, held, chosen, jobs, shard_tokens, preparation, watch)
    except ValueError:
        shutil.rmtree(folder)
        raise
    return Corpus(out)


def find_sources(
    sources: Sequence[str | os.PathLike[str]], field: str = "text", separator: str | None = None
) -> list[Source]:
    """Files and data sets, in the order given."""
    if isinstance(sources, (str, os.PathLike)) or not sources:
        raise ValueError(f"sources must be a list of at least one path or hf:NAME; got {sources!r}")
    if not field:
        raise ValueError(f"field must be a name; got {field!r}")
    if separator == "":
        raise ValueError("separator must be at least one character, or None; got ''")
    found: list[Source] = []
    for each in (os.fspath(source) for source in sources):
        if each.startswith("hf:"):
            found.append(parse_dataset(each[3:], field))
        else:
            found.extend(TextFile(path, field, separator) for path in find_files([each]))
    name, times = Counter(source.name for source in found).most_common(1)[0]
    if times > 1:
        raise ValueError(f"sources must differ; {name} is given {times} times")
    return found


class HeldOut:
    """Which part of a document belongs to which split."""

    def __init__(self, documents: int, count: int | None, fraction: float | None, seed: int) -> None:
        self._fraction = fraction
        self._chosen: NDArray[numpy.bool_] = numpy.zeros(documents, bool)
        if fraction is None:
            assert count is not None
            if count >= documents:
                raise ValueError(
                    f"validation_documents must be less than the {documents} documents that there are; got {count}. "
                    "A fraction of each document can be held out instead: validation_fraction"
                )
            # The bits of PCG64 itself, which numpy keeps as they are, where it may change how it draws from them.
            bits = numpy.random.PCG64(seed).random_raw(documents)
            self._chosen[numpy.argsort(bits, kind="stable")[:count]] = True

    def part(self, number: int, text: str, split: str) -> str:
        """What of the document with this number is in the split: all, a part, or nothing."""
        if self._fraction is None:
            return text if self._chosen[number] == (split == "validation") else ""
        cut = int(len(text) * (1 - self._fraction))
        return text[cut:] if split == "validation" else text[:cut]


def _check(count: int | None, fraction: float | None, seed: int, shard_tokens: int) -> None:
    if count is not None and fraction is not None:
        raise ValueError("validation_documents and validation_fraction: only one of them can be given")
    if count is not None and count < 0:
        raise ValueError(f"validation_documents must be at least 0; got {count}")
    if fraction is not None and not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must be more than 0 and less than 1; got {fraction}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0; got {seed}")
    if shard_tokens < 1:
        raise ValueError(f"shard_tokens must be at least 1; got {shard_tokens}")


def _survey(sources: Sequence[Source], plan: Path, collect: bool, watch: Watch) -> Survey:
    """Read everything once; what an interrupted preparation found holds while no source has a new stamp."""
    before = read_json(plan)
    stamps = [source.stamp() for source in sources]
    if before is not None and before["stamps"] == stamps and bool(before["characters"]) == collect:
        return Survey(before["preparation"]["sources"], before["characters"])
    found, characters, total = [], set[str](), 0
    for source in sources:
        digest, documents, size = hashlib.sha256(), 0, 0
        for text in source:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "little") + content)
            if collect:
                characters.update(text)
            documents, size = documents + 1, size + len(content)
            watch("reading", total + size, None)
        total += size
        found.append({"name": source.name, "documents": documents, "bytes": size, "sha256": digest.hexdigest()})
    return Survey(found, "".join(sorted(characters)))


def _the_same(out: Path, tokenizer: Tokenizer, preparation: dict[str, Any]) -> Corpus:
    if not out.is_dir() or not (out / MANIFEST).exists():
        raise FileExistsError(f"{out} is there already, and is not a corpus")
    manifest = read_manifest(out)
    if manifest["tokenizer"] != describe_tokenizer(tokenizer) or manifest["preparation"] != preparation:
        raise FileExistsError(f"{out} holds another corpus: other text, tokenizer or options; give another folder")
    return Corpus(out)


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """The folder with its plan, or the one that was left with the same plan."""
    before = read_json(folder / MANIFEST) or read_json(folder / PLAN)
    if before is not None and any(before[key] != plan[key] for key in ("tokenizer", "preparation")):
        raise FileExistsError(
            f"{folder} holds an interrupted preparation of other text, or with another tokenizer or options; "
            "repeat that one, or remove the folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.rglob(".*.tmp"):
        left.unlink()
    write_json(folder / PLAN, plan)


def _write(
    folder: Path,
    out: Path,
    sources: Sequence[Source],
    survey: Survey,
    held: HeldOut,
    tokenizer: Tokenizer,
    jobs: int,
    shard_tokens: int,
    preparation: dict[str, Any],
    watch: Watch,
) -> None:
    if (folder / MANIFEST).exists():  # only the last step was missing
        return publish(folder, out)
    save_tokenizer(tokenizer, folder / TOKENIZER)
    splits, done = {}, 0
    with Encoder(tokenizer, folder / TOKENIZER, jobs) as encoder:
        for split in reversed(SPLITS):
            with SplitWriter(folder, split, dtype_for(tokenizer.vocabulary), shard_tokens) as writer:
                texts = islice(_texts(sources, held, split), writer.documents, None)
                done += writer.bytes
                for tokens, size in encoder.encode(texts):
                    writer.add(tokens, size)
                    done += size
                    watch("tokenising", done, survey.bytes)
                splits[split] = writer.finish()
    if done != survey.bytes:
        raise ValueError(f"sources must not change while they are read: {survey.bytes} bytes of text became {done}")
    finish_corpus(folder, out, tokenizer, splits, preparation)


def _texts(sources: Sequence[Source], held: HeldOut, split: str) -> Iterator[str]:
    number = 0
    for source in sources:
        for text in source:
            if part := held.part(number, text, split):
                yield part
            number += 1
