"""Learn from a teacher that answers questions: L*, by the package AALpy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy

from latchwork.automata import Machine
from latchwork.automata.learn import lstar
from latchwork.learning.traces import Name, Names, in_order

Teacher = Callable[[tuple[Name, ...]], Name]
MOST_LABELS = 10_000


def ask(
    teacher: Teacher, symbols: Sequence[Name], outputs: Sequence[Name] | None, *, words: int, length: int, seed: int
) -> tuple[Names, Machine, int, float]:
    """Names, the machine, how many questions were asked, and the seconds it took.

    words, length: random words, of at most that length, on which a machine is compared with the teacher before it is
    taken. Each question is asked once.
    """
    start = time.monotonic()
    labels: dict[Name, int] = {label: k for k, label in enumerate(outputs or ())}

    def answer(word: tuple[int, ...]) -> int:
        label = teacher(tuple(symbols[each] for each in word))
        if outputs is not None and label not in labels:
            raise ValueError(f"teacher must answer with one of outputs, {list(outputs)!r:.200}; got {label!r:.80}")
        if labels.setdefault(label, len(labels)) >= MOST_LABELS:
            raise ValueError(f"teacher must give at most {MOST_LABELS:,} different answers; it gave more")
        return labels[label]

    machine, asked = lstar(answer, len(symbols), words=words, length=length, seed=seed)
    names = tuple(labels) if outputs is not None else in_order(labels)
    order = numpy.array([names.index(label) for label in labels])
    machine = replace(machine, outputs=order[machine.outputs]).minimise()
    return Names(tuple(symbols), names), machine, asked, time.monotonic() - start


def compare(
    teacher: Teacher, names: Names, machine: Machine, *, words: int, length: int, seed: int
) -> tuple[int, tuple[int, ...] | None]:
    """On how many new random words the machine's last answer is the teacher's, and the shortest on which it is not."""
    random = numpy.random.default_rng((seed, 1))
    right, worst = 0, None
    for _ in range(words):
        word = random.integers(0, machine.n_symbols, random.integers(1, length + 1))
        said = names.output(int(machine.run(word[None])[0, -1]))
        if said == teacher(tuple(names.symbols[each] for each in word)):
            right += 1
        elif worst is None or len(word) < len(worst):
            worst = tuple(word.tolist())
    return right, worst
