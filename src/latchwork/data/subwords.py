"""Tokenizers of the `tokenizers` library, from a tokenizer.json: GPT-2's, or any other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy

from latchwork.data.tokenizers import MOST_BYTES, SUBWORDS, ByteStream, TextStream, Tokens
from latchwork.extras import optional
from latchwork.files import read_json, read_text

CONFIG = "tokenizer_config.json"
MOST_TOKENS = 1 << 24
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")  # tried if no config names the end token


class Subwords:
    """A tokenizer of the `tokenizers` library. The files are those of the Hugging Face format.

    content: a tokenizer.json. end: the token after each document, or None.
    A special token that is written out in a text is encoded as ordinary text.
    """

    kind = "subwords"

    def __init__(self, content: str, end: str | None) -> None:
        self._content, self._end, self._tokenizer = content, end, _parse(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.vocabulary = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        if not 1 <= self.vocabulary <= MOST_TOKENS:
            raise ValueError(
                f"content must have 1 to {MOST_TOKENS:,} tokens; it has numbers up to {self.vocabulary - 1:,}"
            )
        self.end: int | None = None if end is None else self._tokenizer.token_to_id(end)
        if end is not None and self.end is None:
            raise ValueError(f"end must be a token of the vocabulary; got {end!r}")

    @classmethod
    def load(cls, path: Path) -> Subwords:
        """From a tokenizer.json. A tokenizer_config.json beside it names the end token; else usual names are tried."""
        content, config = read_text(path, MOST_BYTES), path.with_name(CONFIG)
        values = read_json(config) or {}
        try:
            if "eos_token" not in values:
                return cls(content, _usual_end(content))
            end = values["eos_token"]
            end = end.get("content") if isinstance(end, dict) else end
            if not isinstance(end, str | None):
                raise ValueError(f"{config} must have a text as eos_token; it has {end!r:.80}")
            return cls(content, end)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_merges(cls, vocabulary: Path, merges: Path) -> Subwords:
        """Byte-level BPE from its two files, as GPT-2 has it: vocab.json and merges.txt."""
        library = tokenizers_library()
        try:
            model = library.models.BPE.from_file(str(vocabulary), str(merges))
        except Exception as error:
            raise ValueError(f"{vocabulary} and {merges} must be a vocabulary and its merges: {error}") from None
        tokenizer = library.Tokenizer(model)
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        end = next((each for each in ENDS if tokenizer.token_to_id(each) is not None), None)
        if end is not None:
            tokenizer.add_special_tokens([end])
        return cls(tokenizer.to_str(), end)

    def encode(self, text: str) -> Tokens:
        """The tokens of a text."""
        (found,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return numpy.array(found.ids, numpy.int64)

    def encode_batch(self, texts: Sequence[str]) -> list[Tokens]:
        """One text at a time: processes make it faster, threads within them do not."""
        return [self.encode(text) for text in texts]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; special tokens have none."""
        numbers = [int(token) for token in tokens]
        if numbers and not 0 <= min(numbers) <= max(numbers) < self.vocabulary:
            raise ValueError(f"tokens must be at least 0 and less than {self.vocabulary}; got {numbers[:5]} ...")
        if self._raw is not None:
            return b"".join(self._raw[number] for number in numbers).decode(errors="replace")
        return str(self._tokenizer.decode(numbers, skip_special_tokens=True))

    def stream(self) -> TextStream:
        """A decoder of one token at a time."""
        raw = self._raw
        return _Stream(self) if raw is None else ByteStream(lambda token: raw[token])

    def byte_lengths(self) -> Tokens | None:
        """Known if tokens are bytes, as in GPT-2."""
        return None if self._raw is None else numpy.array([len(each) for each in self._raw], numpy.int64)

    def files(self) -> dict[str, bytes]:
        """tokenizer.json as it was given, and a config that names the end token."""
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": self._end}
        config["clean_up_tokenization_spaces"] = False
        return {SUBWORDS: self._content.encode(), CONFIG: (json.dumps(config, indent=1) + "\n").encode()}

    @cached_property
    def _raw(self) -> list[bytes] | None:
        """The bytes of each token, if its letters are bytes; a special token has none."""
        decoder, normalizer = self._tokenizer.decoder, self._tokenizer.normalizer
        if not isinstance(decoder, tokenizers_library().decoders.ByteLevel) or normalizer is not None:
            return None
        added = self._tokenizer.get_added_tokens_decoder()
        byte = bytes_of_letters()
        raw = [b""] * self.vocabulary
        for token, number in self._tokenizer.get_vocab(with_added_tokens=True).items():
            if number in added:
                raw[number] = b"" if added[number].special else token.encode()
            else:
                raw[number] = bytes(byte[letter] for letter in token)
        return raw


class _Stream:
    """For tokenizers whose tokens are not bytes: text is returned when later tokens cannot change it."""

    def __init__(self, tokenizer: Subwords) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._shown = ""

    def push(self, token: int) -> str:
        """What this token adds to the text."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        return "" if text.endswith("\N{REPLACEMENT CHARACTER}") else self._show(text)

    def finish(self) -> str:
        """The rest of the text."""
        return self._show(self._tokenizer.decode(self._tokens))

    def _show(self, text: str) -> str:
        new, self._shown = text[len(self._shown) :], text
        return new


def tokenizers_library() -> Any:
    """The `tokenizers` library."""
    return optional("lm", "tokenizers")


def _parse(content: str) -> Any:
    """A tokenizer.json as the library's tokenizer."""
    try:
        return tokenizers_library().Tokenizer.from_str(content)
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"content must be a tokenizer.json: {error}") from None


def _usual_end(content: str) -> str | None:
    added = [each.content for each in _parse(content).get_added_tokens_decoder().values()]
    return next((each for each in ENDS if each in added), None)


def bytes_of_letters() -> dict[str, int]:
    """The letter of each byte in byte-level BPE: printable Latin-1 is itself, the others follow from U+0100.

    >>> letters = bytes_of_letters()
    >>> len(letters), letters["a"], letters["Ġ"]
    (256, 97, 32)
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
