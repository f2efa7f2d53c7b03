"""Tokenising in several processes. The result does not depend on their number."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from latchwork.data.corpus import DTYPES
from latchwork.data.shards import dtype_for
from latchwork.data.tokenizers import Tokenizer, load_tokenizer
from latchwork.signals import SIGNALS

BATCH = 1 << 20  # characters sent to a process at a time
Encoded = tuple[NDArray[Any], int]  # a document's tokens, with the end; the bytes of its text


class Encoder:
    """Encodes documents in order: in this process with jobs=1, else in `jobs` processes, which end with this one.

    folder: where the tokenizer's files are, for the processes. Use it in a `with`.
    """

    def __init__(self, tokenizer: Tokenizer, folder: Path, jobs: int) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1; got {jobs}")
        self._tokenizer, self._jobs = tokenizer, jobs
        self._pool = None
        if jobs > 1:
            self._pool = ProcessPoolExecutor(
                jobs, mp_context=get_context("spawn"), initializer=_start, initargs=(folder,)
            )

    def __enter__(self) -> Encoder:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def encode(self, texts: Iterable[str]) -> Iterator[Encoded]:
        """The tokens and bytes of each text. Memory: a few batches for each process."""
        if self._pool is None:
            for batch in _batches(texts):
                yield from encode_documents(self._tokenizer, batch)
            return
        waiting: deque[Future[list[Encoded]]] = deque()
        try:
            for batch in _batches(texts):
                waiting.append(self._pool.submit(_encode, batch))
                if len(waiting) > 2 * self._jobs:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except BrokenProcessPool as error:
            raise ChildProcessError(f"a process that tokenises was killed; is the memory enough? {error}") from error


def encode_documents(tokenizer: Tokenizer, texts: list[str]) -> list[Encoded]:
    """Each document's tokens with the end token, in the dtype of a shard; and the bytes of its text."""
    dtype = DTYPES[dtype_for(tokenizer.vocabulary)]
    end = [] if tokenizer.end is None else [tokenizer.end]
    return [
        (numpy.concatenate([tokens, end]).astype(dtype), len(text.encode()))
        for text, tokens in zip(texts, tokenizer.encode_batch(texts), strict=True)
    ]


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_worker: Tokenizer  # of a process of the pool


def _start(folder: Path) -> None:
    global _worker
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent receives it, and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = load_tokenizer(folder)


def _end_with_parent() -> None:
    """A killed parent cannot end its children: without this, they would wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(texts: list[str]) -> list[Encoded]:
    return encode_documents(_worker, texts)
