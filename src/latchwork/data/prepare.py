"""Text to a corpus: read, split, tokenise, write. After an interruption at any moment, the same call resumes."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from latchwork.data.corpus import MANIFEST, SPLITS, TOKENIZER, Corpus, read_manifest
from latchwork.data.dataset import parse_dataset
from latchwork.data.documents import Source, TextFile, file_format, find_files
from latchwork.data.encoding import Encoder
from latchwork.data.held_out import HeldOut
from latchwork.data.make_tokenizer import make_tokenizer
from latchwork.data.shards import SHARD_TOKENS, SplitWriter, dtype_for, publish, write_manifest
from latchwork.data.survey import Survey, WatchBytes, survey_sources
from latchwork.data.tokenizers import Characters, Tokenizer, describe_tokenizer, save_tokenizer
from latchwork.differences import differences, summary
from latchwork.extras import need
from latchwork.files import read_json, write_json
from latchwork.run_lock import run_lock

VALIDATION_DOCUMENTS = 5000
PLAN = ".plan.json"


@dataclass(frozen=True)
class Preparation:
    """Everything that decides the content of the corpus, and nothing else."""

    sources: list[Source]
    survey: Survey
    held: HeldOut
    tokenizer: Tokenizer
    options: dict[str, Any]  # plain values for the manifest, including the survey

    def describe(self) -> dict[str, Any]:
        """Plain values that identify an interrupted preparation."""
        return {
            "stamps": [source.stamp() for source in self.sources],
            "characters": self.survey.characters,
            "tokenizer": describe_tokenizer(self.tokenizer),
            "preparation": self.options,
        }


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
    watch: WatchBytes | None = None,
) -> Corpus:
    """Make the corpus `out` from the documents in sources: files, folders, patterns, or hf:NAME for a data set.

    tokenizer: a Tokenizer; a name that `make_tokenizer` takes; or "characters", those that occur in the text.
    validation_documents: the number of documents held out, drawn by seed; 5000 by default.
    validation_fraction: instead, the last part of each document is held out, counted in characters.
    field, separator: see TextFile. jobs: processes; the result does not depend on them.

    The sources are read three times: once before anything is written, and once for each split. The corpus appears
    under its name when it is whole. Until then it is in a hidden folder beside `out`: an interrupted call keeps its
    finished shards there, bad input removes the folder.
    """
    _check(validation_documents, validation_fraction, seed, shard_tokens)
    if validation_documents is None and validation_fraction is None:
        validation_documents = VALIDATION_DOCUMENTS
    out, watch = Path(out), watch or (lambda *_: None)
    if not out.name:
        raise ValueError(f"out must be a folder with a name; got {out}")
    folder = out.with_name(f".{out.name}.partial")
    found = find_sources(sources, field, separator)
    _check_packages(found)
    if not isinstance(tokenizer, str):
        chosen: Tokenizer | None = tokenizer
    else:
        chosen = None if tokenizer == "characters" else make_tokenizer(tokenizer)
    survey = _survey(found, chosen is None, folder, watch)
    plan = Preparation(
        found,
        survey,
        HeldOut(survey.documents, validation_documents, validation_fraction, seed),
        chosen or Characters(survey.characters),
        {
            "sources": survey.sources,
            "validation_documents": validation_documents,
            "validation_fraction": validation_fraction,
            "seed": seed if validation_fraction is None else None,
            "shard_tokens": shard_tokens,
        },
    )
    if (made := _the_same(out, plan)) is not None:
        return made
    folder.mkdir(parents=True, exist_ok=True)
    with run_lock(folder):
        if (made := _the_same(out, plan)) is not None:  # another process has made it since
            shutil.rmtree(folder)
            return made
        _begin(folder, plan.describe())
        try:
            if not (folder / MANIFEST).exists():
                _write(folder, plan, jobs, watch)
            publish(folder, out)
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


def _check_packages(sources: Sequence[Source]) -> None:
    files = [source.path for source in sources if isinstance(source, TextFile)]
    needed = {
        "datasets": len(files) < len(sources),
        "pyarrow": any(file_format(path) == ".parquet" for path in files),
        "zstandard": any(path.suffix == ".zst" for path in files),
    }
    need("lm", *(module for module, wanted in needed.items() if wanted))


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


def _survey(sources: list[Source], collect_characters: bool, folder: Path, watch: WatchBytes) -> Survey:
    """The survey of an interrupted preparation if no source has changed since, else a new one."""
    before = read_json(folder / PLAN) or {}
    stamps, characters = [source.stamp() for source in sources], before.get("characters")
    found = before["preparation"].get("sources") if isinstance(before.get("preparation"), dict) else None
    same = before.get("stamps") == stamps and bool(characters) == collect_characters
    if same and isinstance(found, list) and isinstance(characters, str):
        return Survey(found, characters)
    return survey_sources(sources, collect_characters, watch)


def _the_same(out: Path, plan: Preparation) -> Corpus | None:
    """The corpus if it exists already; a different corpus there is an error."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not out.is_dir() or not (out / MANIFEST).exists():
        raise FileExistsError(f"{out} is there already, and is not a corpus")
    if lines := _differences(read_manifest(out), plan.describe()):
        raise FileExistsError(f"{out} holds another corpus: {summary(lines)}. Choose another --out")
    return Corpus(out)


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    old, new = ({key: each.get(key) for key in ("tokenizer", "preparation")} for each in (there, here))
    return differences(old, new)


def _begin(folder: Path, plan: dict[str, Any]) -> None:
    """Write the plan into the folder; an unfinished folder must have the same plan."""
    before = read_json(folder / MANIFEST) or read_json(folder / PLAN)
    if before is not None and (lines := _differences(before, plan)):
        raise FileExistsError(
            f"{folder} holds an interrupted preparation of another corpus: {summary(lines)}. "
            "Repeat that one, or remove the folder"
        )
    for left in folder.rglob(".*.tmp"):
        left.unlink()
    write_json(folder / PLAN, plan)


def _write(folder: Path, plan: Preparation, jobs: int, watch: WatchBytes) -> None:
    """Write the tokens, the tokenizer and, last, the manifest."""
    tokenizer, total = plan.tokenizer, plan.survey.bytes
    save_tokenizer(tokenizer, folder / TOKENIZER)
    splits, done = {}, 0
    with Encoder(tokenizer, folder / TOKENIZER, jobs) as encoder:
        for split in reversed(SPLITS):
            dtype = dtype_for(tokenizer.vocabulary)
            with SplitWriter(folder, split, dtype, plan.options["shard_tokens"]) as writer:
                texts = islice(_texts(plan.sources, plan.held, split), writer.documents, None)
                done += writer.bytes
                for tokens, size in encoder.encode(texts):
                    writer.add(tokens, size)
                    done += size
                    watch("tokenising", done, total)
                splits[split] = writer.finish()
    if done != total:
        raise ValueError(f"sources must not change while they are read: {total} bytes of text became {done}")
    write_manifest(folder, tokenizer, splits, plan.options)


def _texts(sources: Sequence[Source], held: HeldOut, split: str) -> Iterator[str]:
    number = 0
    for source in sources:
        for text in source:
            if part := held.part(number, text, split):
                yield part
            number += 1
