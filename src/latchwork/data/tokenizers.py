"""Text to token numbers and back."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray

from latchwork.files import check_hashes, read_json, write_json

Tokens = NDArray[numpy.int64]
CHARACTERS, BYTES, SUBWORDS = "characters.json", "bytes.json", "tokenizer.json"
HASHES = "sha256.json"  # of these files
MOST_BYTES = 1 << 28  # of each


class TextStream(Protocol):
    """Decodes tokens one at a time. A character is returned when all its bytes have arrived."""

    def push(self, token: int) -> str:
        """What this token adds to the text."""

    def finish(self) -> str:
        """The rest of the text: a replacement character if the last one is incomplete."""


class Tokenizer(Protocol):
    """Text to token numbers less than `vocabulary`, and back. The end token, if there is one, stands for no text."""

    @property
    def kind(self) -> str:
        """The kind of tokenizer, by name."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""

    @property
    def end(self) -> int | None:
        """The token after each document, or None."""

    def encode(self, text: str) -> Tokens:
        """The tokens of a text, without the end token."""

    def encode_batch(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text."""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""

    def stream(self) -> TextStream:
        """A decoder of one token at a time."""

    def byte_lengths(self) -> Tokens | None:
        """The number of UTF-8 bytes of each token, or None if it depends on the tokens around it."""

    def files(self) -> dict[str, bytes]:
        """Names and contents of the files that save it."""


class Characters:
    """One token for each character of an alphabet, numbered by code point. There is no end token.

    >>> tokenizer = Characters("abc")
    >>> tokenizer.encode("cab").tolist()
    [2, 0, 1]
    >>> tokenizer.encode("cat")
    Traceback (most recent call last):
    ...
    ValueError: text has 't' (U+0074) at position 2, which is none of the vocabulary's 3 characters
    """

    kind = "characters"
    end = None

    def __init__(self, alphabet: Iterable[str]) -> None:
        letters = sorted(set(alphabet))
        if not letters or any(len(each) != 1 for each in letters):
            raise ValueError(f"alphabet must be one or more characters; got {letters[:5]!r}")
        self.alphabet = "".join(letters)
        self.vocabulary = len(letters)
        self._points = _code_points(self.alphabet)

    def encode(self, text: str) -> Tokens:
        """The tokens of a text; a character outside the alphabet is an error."""
        points = _code_points(text)
        tokens = numpy.searchsorted(self._points, points).clip(max=self.vocabulary - 1)
        if (wrong := self._points[tokens] != points).any():
            place = int(wrong.argmax())
            raise ValueError(
                f"text has {text[place]!r} (U+{ord(text[place]):04X}) at position {place}, "
                f"which is none of the vocabulary's {self.vocabulary} characters"
            )
        return tokens.astype(numpy.int64)

    def encode_batch(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        return "".join(self.alphabet[_checked(token, self.vocabulary)] for token in tokens)

    def stream(self) -> TextStream:
        """Every token is a character."""
        return ByteStream(lambda token: self.decode([token]).encode())

    def byte_lengths(self) -> Tokens:
        """1 to 4 bytes each."""
        return numpy.array([len(each.encode()) for each in self.alphabet], numpy.int64)

    def files(self) -> dict[str, bytes]:
        """The alphabet."""
        return {CHARACTERS: _json({"characters": self.alphabet})}


class Bytes:
    """The 256 bytes of UTF-8, and token 256 for the end of a document.

    >>> Bytes().encode("né").tolist()
    [110, 195, 169]
    """

    kind = "bytes"
    vocabulary = 257
    end = 256

    def encode(self, text: str) -> Tokens:
        """The bytes of a text."""
        return numpy.frombuffer(text.encode(), numpy.uint8).astype(numpy.int64)

    def encode_batch(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; a replacement sign where bytes are not UTF-8."""
        return self.raw(tokens).decode(errors="replace")

    def raw(self, tokens: Iterable[int]) -> bytes:
        """The bytes of tokens."""
        return bytes(token for token in tokens if _checked(token, self.vocabulary) != self.end)

    def stream(self) -> TextStream:
        """A character is returned with its last byte."""
        return ByteStream(lambda token: self.raw([token]))

    def byte_lengths(self) -> Tokens:
        """1 for each byte, 0 for the end token."""
        return numpy.array([1] * 256 + [0], numpy.int64)

    def files(self) -> dict[str, bytes]:
        """A file that marks the kind."""
        return {BYTES: _json({"end": self.end})}


class ByteStream:
    """A TextStream for tokens that are bytes."""

    def __init__(self, raw: Callable[[int], bytes]) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """What this token adds to the text."""
        return self._decoder.decode(self._raw(token))

    def finish(self) -> str:
        """A replacement character if the last one is incomplete."""
        return self._decoder.decode(b"", final=True)


def save_tokenizer(tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> None:
    """Write the tokenizer's files, then their hashes, into a folder. Each file appears whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / HASHES).unlink(missing_ok=True)  # of another tokenizer
    for name, content in tokenizer.files().items():
        temporary = folder / f".{name}.{os.getpid()}.tmp"
        temporary.write_bytes(content)
        temporary.replace(folder / name)
    write_json(folder / HASHES, describe_tokenizer(tokenizer)["files"])


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer that `save_tokenizer` wrote. A changed file is an error; missing hashes are not."""
    folder = Path(folder)
    if (hashes := read_json(folder / HASHES)) is not None:
        check_hashes(folder, hashes, folder / HASHES, MOST_BYTES)
    if (folder / CHARACTERS).is_file():
        values = read_json(folder / CHARACTERS) or {}
        try:
            if not isinstance(values.get("characters"), str):
                raise ValueError(f"it must have a text under 'characters'; it has {values!r:.80}")
            return Characters(values["characters"])
        except ValueError as error:
            raise ValueError(f"{folder / CHARACTERS} is not whole: {error}") from error
    if (folder / BYTES).is_file():
        return Bytes()
    if (folder / SUBWORDS).is_file():
        from latchwork.data.subwords import Subwords

        return Subwords.load(folder / SUBWORDS)
    raise FileNotFoundError(f"{folder} holds no tokenizer: neither {CHARACTERS} nor {BYTES} nor {SUBWORDS}")


def describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Plain values for a manifest. Tokenizers with the same sha256 are the same."""
    files = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(tokenizer.files().items())}
    return {
        "kind": tokenizer.kind,
        "vocabulary": tokenizer.vocabulary,
        "end": tokenizer.end,
        "files": files,
        "sha256": hashlib.sha256(_json(files)).hexdigest(),
    }


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False, indent=1) + "\n").encode()


def _code_points(text: str) -> NDArray[numpy.uint32]:
    return numpy.frombuffer(text.encode("utf-32-le"), "<u4")


def _checked(token: int, vocabulary: int) -> int:
    if not 0 <= token < vocabulary:
        raise ValueError(f"tokens must be at least 0 and less than {vocabulary}; got {token}")
    return int(token)
