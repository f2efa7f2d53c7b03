"""Reading all sources once, before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from latchwork.data.documents import Source

WatchBytes = Callable[[str, int, int | None], None]  # the task, bytes of text done, bytes in all or None


@dataclass(frozen=True)
class Survey:
    """What the sources hold."""

    sources: list[dict[str, Any]]  # name, documents, bytes and sha256 of the text of each
    characters: str  # all characters that occur, if they are asked for

    @property
    def documents(self) -> int:
        """In all sources."""
        return sum(each["documents"] for each in self.sources)

    @property
    def bytes(self) -> int:
        """In all sources."""
        return sum(each["bytes"] for each in self.sources)


def survey_sources(sources: Sequence[Source], collect_characters: bool, watch: WatchBytes) -> Survey:
    """Read every document, so that one that cannot be read is an error now and not after hours."""
    found: list[dict[str, Any]] = []
    characters: set[str] = set()
    before = 0
    for source in sources:
        digest, documents, size = hashlib.sha256(), 0, 0
        for text in source:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "little") + content)
            if collect_characters:
                characters.update(text)
            documents, size = documents + 1, size + len(content)
            watch("reading", before + size, None)
        before += size
        found.append({"name": source.name, "documents": documents, "bytes": size, "sha256": digest.hexdigest()})
    return Survey(found, "".join(sorted(characters)))
