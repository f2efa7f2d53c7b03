"""Learn from a teacher that answers questions: L*, by the package AALpy."""

from __future__ import annotations

import random as python_random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from latchwork.automata import Machine
from latchwork.extras import need
from latchwork.learning.traces import Name, Names

Teacher = Callable[[tuple[Name, ...]], Name]
MOST_LABELS = 10_000


def ask(
    teacher: Teacher, symbols: Sequence[Name], outputs: Sequence[Name] | None, *, words: int, length: int, seed: int
) -> tuple[Names, Machine, int, float]:
    """Names, the machine, how many questions were asked, and the seconds it took.

    words, length: random words, of at most that length, on which a machine is compared with the teacher before it is
    taken. A teacher that gives two answers to one question is an error.
    """
    need("automata", "aalpy")
    from aalpy.base import SUL
    from aalpy.learning_algs import run_Lstar
    from aalpy.oracles import RandomWordEqOracle

    start, known = time.monotonic(), dict[tuple[int, ...], int]()
    labels: dict[Name, int] = {label: k for k, label in enumerate(outputs or ())}

    def answer(word: tuple[int, ...]) -> int:
        if word not in known:
            label = teacher(tuple(symbols[each] for each in word))
            if outputs is not None and label not in labels:
                raise ValueError(f"teacher must answer with one of outputs, {list(outputs)!r:.200}; got {label!r:.80}")
            known[word] = labels.setdefault(label, len(labels))
            if len(labels) > MOST_LABELS:
                raise ValueError(f"teacher must give at most {MOST_LABELS:,} different answers; it gave more")
        return known[word]

    class Asked(SUL):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.word: tuple[int, ...] = ()

        def pre(self) -> None:
            self.word = ()

        def post(self) -> None:
            pass

        def step(self, letter: Any) -> int:
            self.word = (*self.word, int(letter))
            return answer(self.word)

    alphabet, asked = list(range(len(symbols))), Asked()
    state = python_random.getstate()
    python_random.seed(seed)
    try:
        oracle = RandomWordEqOracle(alphabet, asked, num_walks=words, min_walk_len=1, max_walk_len=length)
        found = run_Lstar(alphabet, asked, oracle, automaton_type="mealy", print_level=0, cache_and_non_det_check=False)
    finally:
        python_random.setstate(state)
    number = {each.state_id: k for k, each in enumerate(found.states)}
    machine = Machine.from_table(
        [[number[each.transitions[letter].state_id] for letter in alphabet] for each in found.states],
        [[int(each.output_fun[letter]) for letter in alphabet] for each in found.states],
        number[found.initial_state.state_id],
    ).minimise()
    return Names(tuple(symbols), tuple(labels)), machine, len(known), time.monotonic() - start


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
