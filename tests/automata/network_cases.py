"""Networks on a grid; how to ask a network: its answers, and a walk through all words at once."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy
import torch

from latchwork.automata import Machine
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.modules.state import State


def on_grid(model: MinMaxRNC_LM, levels: int | None = 3, **changes) -> MinMaxRNC_LM:
    """The same weights, with states rounded to a grid that 0 and 1 are on."""
    config = replace(model.config, backbone=replace(model.config.backbone, levels=levels, **changes))
    other = MinMaxRNC_LM(model.vocab_size, config)
    other.load_state_dict(model.state_dict())
    return other.eval()


def random_network(seed: int, **changes) -> MinMaxRNC_LM:
    """Weights of a size at which the answers depend on the word."""
    torch.manual_seed(seed)
    config = MinMaxRNCLMConfig.small(**{"d_model": 8, "d_state": 3, "n_layers": 1, "levels": 3, **changes})
    model = MinMaxRNC_LM(2, config).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each) * 0.5)
    return model


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
