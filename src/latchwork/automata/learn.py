"""Learn a machine from answers alone, by L*. What comes out is a hypothesis: it may be wrong."""

from __future__ import annotations

import random as python_random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from latchwork.automata.lazy import LazyMachine
from latchwork.extras import need
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM

Word = tuple[int, ...]


@dataclass(frozen=True)
class Hypothesis:
    """A machine that agreed with the network on every word tried, and no more than that.

    tried: random words that it was compared on at the end. queries: different words that the learner asked for.
    """

    machine: Machine
    tried: int
    queries: int


def learn(
    model: MinMaxRNC_LM, *, symbols: int | None = None, words: int = 2000, length: int = 40, seed: int = 0
) -> Hypothesis:
    """L* of the package AALpy, for networks with too many states to `extract`.

    words, length: how many random words, and how long at most, a machine is compared on before it is taken. A network
    that is wrong where no word came by can look perfect: `certify` and `extract` prove, this does not.
    """
    lazy = LazyMachine(model, symbols=symbols)
    machine, queries = lstar(
        lambda word: int(lazy.run(numpy.array(word))[-1]), lazy.symbols, words=words, length=length, seed=seed
    )
    return Hypothesis(machine, tried=words, queries=queries)


def lstar(answer: Callable[[Word], int], symbols: int, *, words: int, length: int, seed: int) -> tuple[Machine, int]:
    """The machine that L* finds for a function from words to answers, and how many different words it asked for.

    words, length: as in `learn`. Each word is asked for once.
    """
    need("automata", "aalpy")
    from aalpy.base import SUL
    from aalpy.learning_algs import run_Lstar
    from aalpy.oracles import RandomWordEqOracle

    known: dict[Word, int] = {}

    class Asked(SUL):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.word: Word = ()

        def pre(self) -> None:
            self.word = ()

        def post(self) -> None:
            pass

        def step(self, letter: Any) -> int:
            self.word = (*self.word, int(letter))
            if self.word not in known:
                known[self.word] = answer(self.word)
            return known[self.word]

    alphabet, asked = list(range(symbols)), Asked()
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
    )
    return machine, len(known)
