"""The data sets of the study: sequences of numbers, their targets, and what is asked.

digits-pixels, digits-rows: scikit-learn's 1,797 images of 8 x 8, read pixel by pixel or row by row.
japanese-vowels, basic-motions, acsf1: from the wheel of `aeon` 1.6.0, with its split; the files are read as they are.
recall: the first of 9,999 symbols is asked for at step 10,000; learnt at 51 to 201 steps.
adding: the sum of the two marked numbers among 1,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor, Tensor]  # inputs (B, T, F), lengths (B,), targets (B,)


@dataclass(frozen=True)
class Problem:
    """features: F. classes: of the target, or 0 where it is a number. draw: a training batch. test: batches."""

    features: int
    classes: int
    draw: Callable[[np.random.Generator], Batch]
    test: list[Batch]


def from_arrays(
    train: list[np.ndarray], train_y: np.ndarray, test: list[np.ndarray], test_y: np.ndarray, size: int = 32
) -> Problem:
    """Sequences (T, F) of any lengths; each feature is scaled by the training set's mean and deviation."""
    flat = np.concatenate(train)
    mean, scale = flat.mean(0), flat.std(0) + 1e-6
    names = sorted(set(train_y.tolist()) | set(test_y.tolist()))
    number = {name: k for k, name in enumerate(names)}

    def batch(sequences: list[np.ndarray], labels: np.ndarray, rows: np.ndarray) -> Batch:
        lengths = torch.tensor([len(sequences[k]) for k in rows])
        inputs = torch.zeros(len(rows), int(lengths.max()), flat.shape[1])
        for row, k in enumerate(rows):
            inputs[row, : lengths[row]] = torch.from_numpy((sequences[k] - mean) / scale)
        return inputs, lengths, torch.tensor([number[labels[k]] for k in rows])

    def draw(random: np.random.Generator) -> Batch:
        return batch(train, train_y, random.choice(len(train), min(size, len(train)), replace=False))

    parts = [np.arange(k, min(k + 64, len(test))) for k in range(0, len(test), 64)]
    return Problem(flat.shape[1], len(names), draw, [batch(test, test_y, rows) for rows in parts])


def digits(width: int) -> Problem:
    """scikit-learn's digits in steps of `width` pixels; a quarter is held out."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    sequences = list(x.reshape(len(x), -1, width).astype(np.float32))
    train, test, train_y, test_y = train_test_split(sequences, y, test_size=0.25, random_state=0, stratify=y)
    return from_arrays(train, train_y, test, test_y)


def read_ts(path: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """A .ts file of the time-series archive: one case a line, dimensions between colons, the label last."""
    sequences, labels = [], []
    for line in path.read_text().split("@data", 1)[1].strip().splitlines():
        *dimensions, label = line.strip().split(":")
        sequences.append(np.array([[float(v) for v in d.split(",")] for d in dimensions], np.float32).T)
        labels.append(label)
    return sequences, np.array(labels)


def aeon(name: str) -> Problem:
    """A data set in aeon's wheel. Only the files are used: the package is found, not imported."""
    spec = find_spec("aeon")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("aeon is missing: pip install --no-deps aeon==1.6.0")
    folder = Path(next(iter(spec.submodule_search_locations))) / "datasets" / "data" / name
    train, test = (read_ts(folder / f"{name}_{part}.ts") for part in ("TRAIN", "TEST"))
    return from_arrays(*train, *test)


def recall_batch(random: np.random.Generator, rows: int, delay: int) -> Batch:
    """One of 8 symbols, then `delay` of 8 others, then a sign: which symbol was the first?"""
    symbols = random.integers(8, 16, (rows, delay + 2))
    symbols[:, 0] = random.integers(0, 8, rows)
    symbols[:, -1] = 16
    inputs = torch.nn.functional.one_hot(torch.from_numpy(symbols), 17).float()
    return inputs, torch.full((rows,), delay + 2), torch.from_numpy(symbols[:, 0].copy())


def recall() -> Problem:
    """Learnt with delays of 50 to 200, asked with 9,998: 10,000 steps in all."""
    held_out = np.random.default_rng(1)
    return Problem(
        17,
        8,
        lambda random: recall_batch(random, 32, int(random.integers(50, 201))),
        [recall_batch(held_out, 16, 9_998) for _ in range(8)],
    )


def adding_batch(random: np.random.Generator, rows: int, steps: int = 1_000) -> Batch:
    """Numbers in 0 to 1 and a mark: one step of each half is marked. The target is the sum of the two numbers."""
    inputs = np.zeros((rows, steps, 2), np.float32)
    inputs[:, :, 0] = random.random((rows, steps))
    first, second = random.integers(0, steps // 2, rows), random.integers(steps // 2, steps, rows)
    for places in (first, second):
        inputs[np.arange(rows), places, 1] = 1
    total = inputs[np.arange(rows), first, 0] + inputs[np.arange(rows), second, 0]
    return torch.from_numpy(inputs), torch.full((rows,), steps), torch.from_numpy(total)


def adding() -> Problem:
    """1,000 steps, learnt and asked."""
    held_out = np.random.default_rng(1)
    return Problem(2, 0, lambda random: adding_batch(random, 8), [adding_batch(held_out, 64) for _ in range(4)])


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "digits-pixels": lambda: digits(1),
    "digits-rows": lambda: digits(8),
    "japanese-vowels": lambda: aeon("JapaneseVowels"),
    "basic-motions": lambda: aeon("BasicMotions"),
    "acsf1": lambda: aeon("ACSF1"),
    "recall": recall,
    "adding": adding,
}
CHOSEN_ON = ("digits-pixels", "japanese-vowels", "adding", "recall")  # the defaults of Latch were chosen on these
