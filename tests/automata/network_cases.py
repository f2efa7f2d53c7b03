"""How to ask a network: its answers, and a walk through all words at once."""

from __future__ import annotations

import itertools

import numpy
import torch

from latchwork.automata import Machine
from latchwork.models import MinMaxRNC_LM
from latchwork.modules.state import State


def all_words(symbols: int, longest: int) -> numpy.ndarray:
    """(symbols ** longest, longest): every word of that length, and with it all that it begins with."""
    return numpy.array(list(itertools.product(range(symbols), repeat=longest)))


def random_words(machine: Machine, rows: int, length: int) -> numpy.ndarray:
    return numpy.random.default_rng(0).integers(machine.n_symbols, size=(rows, length))


def answers(model: MinMaxRNC_LM, words: numpy.ndarray) -> numpy.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(words), chunk_size=4096)[0].argmax(-1).numpy()


def prove(model: MinMaxRNC_LM, machine: Machine, most: int = 50_000) -> int:
    """Walk network and machine together through all words, breadth first; the number of pairs of states."""
    network, states = model.initial_state(1), numpy.array([machine.start])
    symbols, seen = machine.n_symbols, set()
    with torch.no_grad():
        while len(states):
            index, tokens = numpy.repeat(numpy.arange(len(states)), symbols), numpy.tile(range(symbols), len(states))
            logits, after = model(torch.from_numpy(tokens)[:, None], State(*(each[:, index] for each in network)))
            assert (logits[:, 0].argmax(-1).numpy() == machine.outputs[states[index], tokens]).all()
            following = machine.transitions[states[index], tokens]
            new = []
            for row, state in enumerate(following.tolist()):
                key = (state, *(each[:, row].double().add(0.0).numpy().tobytes() for each in after))
                if key not in seen:
                    seen.add(key)
                    new.append(row)
            assert len(seen) <= most
            network, states = State(*(each[:, new] for each in after)), following[new]
    return len(seen)
