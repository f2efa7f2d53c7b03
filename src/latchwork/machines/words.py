"""Words of a machine to try a network on: all short ones, and longer ones at random.

Only words that an answer is still asked for are of use: `live` says by which symbols to go on from a state
(`leads_to`). Where there are none, a word is filled up by symbol 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from latchwork.machines.machine import Machine

Array = numpy.ndarray
TOKENS, WORK = 1 << 13, 1 << 31  # of the random words of each length: symbols, and symbols times parameters, at most
LENGTHS = (16, 64, 256)  # of random words


def leads_to(transitions: Array, asked: Array) -> Array:
    """(states, symbols): whether an answer is asked for at this step, or after it on some way."""
    useful: Array = numpy.asarray(asked.any(1))
    while True:
        more: Array = useful | useful[transitions].any(1)
        if (more == useful).all():
            return numpy.asarray(asked | useful[transitions])
        useful = more


def short_words(machine: Machine, live: Array, most: int) -> Array:
    """(words, length): all words of the largest length at which they have at most this many symbols in all."""
    words, state = numpy.zeros((1, 0), numpy.int64), numpy.array([machine.start])
    while True:
        goes_on = live[state]
        goes_on[~goes_on.any(1), 0] = True
        here, symbols = numpy.nonzero(goes_on)
        length = words.shape[1] + 1
        if length > 1 and (len(here) * length > most or length > LENGTHS[-1] or not live[state].any()):
            return words
        words = numpy.concatenate([words[here], symbols[:, None]], 1)
        state = machine.transitions[state[here], symbols]


def even_moves(machine: Machine, live: Array) -> Array:
    """(states, symbols): how often to draw a symbol so that all states that may follow come equally often.

    Half of the draws are even among live symbols instead. Where one symbol of many moves on, even symbols alone show
    little of what comes after it.
    """
    weights = numpy.zeros(live.shape)
    for state, allowed in enumerate(live):
        symbols = numpy.flatnonzero(allowed)
        if len(symbols):
            _, which, count = numpy.unique(machine.transitions[state, symbols], return_inverse=True, return_counts=True)
            weights[state, symbols] = (1 / (len(count) * count[which]) + 1 / len(symbols)) / 2
    return weights


def random_words(
    machine: Machine, live: Array, random: numpy.random.Generator, forced: Array, weights: Array | None = None
) -> tuple[Array, Array]:
    """Words drawn evenly among live symbols, and the machine's state before each step, both (words, length).

    forced: (words, length), symbols to take where they are live; -1 where any will do. weights: (states, symbols), for
    draws that are not even, as of `even_moves`.
    """
    tokens, states = numpy.zeros(forced.shape, numpy.int64), numpy.zeros(forced.shape, numpy.int64)
    state, rows = numpy.full(len(forced), machine.start), numpy.arange(len(forced))
    for step, wanted in enumerate(forced.T):
        allowed = live[state]
        if weights is None:
            symbol = (random.random(allowed.shape) * allowed).argmax(1)
        else:
            heights = weights[state].cumsum(1)
            symbol = (random.random(len(state))[:, None] * heights[:, -1:] < heights).argmax(1)
        given = (wanted >= 0) & allowed[rows, numpy.maximum(wanted, 0)]
        tokens[:, step], states[:, step] = numpy.where(given, wanted, symbol), state
        state = machine.transitions[state, tokens[:, step]]
    return tokens, states


def words_to_try(machine: Machine, live: Array, parameters: int) -> Iterator[Array]:
    """Batches of words, (words, length): first all short ones, then random ones of several lengths, always the same.

    parameters: of the network; for a large one there are fewer words.
    """
    most = max(1, min(TOKENS, WORK // parameters))
    yield short_words(machine, live, 2 * most)
    random = numpy.random.default_rng(0)
    for length in LENGTHS:
        yield random_words(machine, live, random, numpy.full((-(-most // length), length), -1))[0]


def states_before(machine: Machine, words: Array) -> Array:
    """The machine's state before each step, (words, length)."""
    states = numpy.full(words.shape, machine.start)
    for step in range(1, words.shape[1]):
        states[:, step] = machine.transitions[states[:, step - 1], words[:, step - 1]]
    return states
