"""Documents from a data set on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from latchwork.extras import optional

OPENWEBTEXT = "Skylion007/openwebtext"
ROWS = 1000


@dataclass(frozen=True)
class HubDataset:
    """A split of a data set: downloaded once, then read from disk."""

    dataset: str = OPENWEBTEXT
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    field: str = "text"

    @property
    def name(self) -> str:
        """The name that `latchwork data prepare` takes."""
        config, revision = f":{self.config}" if self.config else "", f"@{self.revision}" if self.revision else ""
        return f"hf:{self.dataset}{config}{revision}[{self.split}]"

    def stamp(self) -> list[Any]:
        """The name, the number of rows, and the library's fingerprint of the data."""
        return [self.name, len(self._rows), self._rows._fingerprint]

    def __iter__(self) -> Iterator[str]:
        """The documents."""
        rows = self._rows.select_columns([self.field])
        for first in range(0, len(rows), ROWS):
            for text in rows[first : first + ROWS][self.field]:
                if text is not None and not isinstance(text, str):
                    raise ValueError(f"{self.name}: the column {self.field!r} must be text; got {type(text).__name__}")
                if text and not text.isspace():
                    yield text

    @cached_property
    def _rows(self) -> Any:
        library = optional("lm", "datasets")
        try:
            rows = library.load_dataset(self.dataset, self.config, split=self.split, revision=self.revision)
        except (OSError, RuntimeError, ValueError) as error:
            raise FileNotFoundError(f"{self.name} could not be had from the hub: {error}") from error
        if self.field not in rows.column_names:
            raise ValueError(f"{self.name} must have a column {self.field!r}; it has {', '.join(rows.column_names)}")
        return rows


def parse_dataset(text: str, field: str = "text") -> HubDataset:
    """The text after "hf:": NAME[:CONFIG][@REVISION], then a split in brackets, train by default.

    >>> parse_dataset("owner/name:plain@main[test]").name
    'hf:owner/name:plain@main[test]'
    """
    found = re.fullmatch(r"([^:@\[\]]+)(?::([^@\[\]]+))?(?:@([^\[\]]+))?(?:\[([^\]]+)\])?", text)
    if found is None:
        raise ValueError(f"a data set must be hf:NAME[:CONFIG][@REVISION], with [SPLIT] behind it; got 'hf:{text}'")
    name, config, revision, split = found.groups()
    return HubDataset(name, config, split or "train", revision, field)
