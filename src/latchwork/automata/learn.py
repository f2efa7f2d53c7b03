"""Learn a machine from a network's answers alone. What comes out is a hypothesis: it may be wrong."""

from __future__ import annotations

import random as python_random
from dataclasses import dataclass
from typing import Any

import numpy

from latchwork.automata.lazy import LazyMachine
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM


@dataclass(frozen=True)
class Hypothesis:
    """A machine that agreed with the network on every word tried, and no more than that.

    tried: random words that it was compared on at the end. queries: words that the learner asked for.
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
    try:
        from aalpy.base import SUL
        from aalpy.learning_algs import run_Lstar
        from aalpy.oracles import RandomWordEqOracle
    except ImportError as error:
        raise ImportError("learning needs AALpy: pip install 'latchwork[automata]'") from error
    lazy = LazyMachine(model, symbols=symbols)

    class Network(SUL):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.word: list[int] = []

        def pre(self) -> None:
            self.word = []

        def post(self) -> None:
            pass

        def step(self, letter: Any) -> int:
            self.word.append(int(letter))
            return int(lazy.run(numpy.array(self.word))[-1])

    alphabet, network = list(range(lazy.symbols)), Network()
    python_random.seed(seed)
    oracle = RandomWordEqOracle(alphabet, network, num_walks=words, min_walk_len=1, max_walk_len=length)
    learned, info = run_Lstar(
        alphabet,
        network,
        oracle,
        automaton_type="mealy",
        print_level=0,
        return_data=True,
        cache_and_non_det_check=False,
    )
    number = {state.state_id: k for k, state in enumerate(learned.states)}
    transitions = [[number[state.transitions[letter].state_id] for letter in alphabet] for state in learned.states]
    outputs = [[int(state.output_fun[letter]) for letter in alphabet] for state in learned.states]
    machine = Machine.from_table(transitions, outputs, number[learned.initial_state.state_id])
    return Hypothesis(machine, tried=words, queries=int(info["queries_learning"]))
