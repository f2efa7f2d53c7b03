"""A network run as a machine that is found on the way."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy
import torch

from latchwork.automata.step import Stepper
from latchwork.machines.walk import walk
from latchwork.models import MinMaxRNC_LM

Array = numpy.ndarray
UNKNOWN = -1
CHUNK = 1 << 15  # steps that the network takes at once
MOST = 1.15  # times what the network alone would take: no more work than that is taken on


class Costs(NamedTuple):
    """Seconds: of one call of the network, of each step in it, and of looking up what follows a state."""

    call: float
    step: float
    look: float

    def alone(self, steps: int) -> float:
        """Of the network by itself."""
        return -(-steps // CHUNK) * self.call + steps * self.step


class LazyMachine:
    """Answers as the network does, from tables that fill as it goes: what has been seen is looked up.

    Where a state and token come that are not in the tables, either what follows the state is found by the network
    (automata/step.py) and put there, or the network goes on by itself for a while. The former only if the whole stays
    within 1.15 times what the network alone would take, even if it had to do all that is left: so it costs little
    where states do not repeat, and where they do, steps answered from the tables pay for more. max_states: no more
    states are put into the tables.
    """

    def __init__(self, model: MinMaxRNC_LM, *, symbols: int | None = None, max_states: int = 100_000) -> None:
        if max_states < 1:
            raise ValueError(f"max_states must be at least 1; got {max_states}")
        self._model = copy.deepcopy(model).eval()
        self._stepper = Stepper(self._model, symbols)
        self.symbols, self.max_states = self._stepper.symbols, max_states
        self._keys = [self._stepper.key(self._stepper.start)]
        self._number = {self._keys[0]: 0}
        self._following = numpy.full((1024, self.symbols), UNKNOWN, numpy.int32)
        self._outputs = numpy.zeros((1024, self.symbols), numpy.int32)
        self._costs = self._measure()
        self._spent = self._alone = 0.0  # seconds, reckoned by the costs: so far, and of the network alone

    def _measure(self) -> Costs:
        call = _clock(lambda: self._network(numpy.zeros(1, int), 0))
        many = _clock(lambda: self._network(numpy.zeros(4097, int), 0))
        look = _clock(lambda: self._stepper.follow(self._keys[:1]))
        return Costs(call, max(many - call, 0.0) / 4096, look)

    @property
    def n_states(self) -> int:
        """How many states are in the tables."""
        return len(self._keys)

    def run(self, tokens: Array) -> Array:
        """The answers (B, T) or (T,) to tokens of that shape, each sequence from the start."""
        tokens = numpy.asarray(tokens)
        if tokens.ndim not in (1, 2) or tokens.dtype.kind not in "iu":
            raise ValueError(f"tokens must be integers (T,) or (B, T); got {tokens.dtype} {tokens.shape}")
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < self.symbols:
            raise ValueError(f"tokens must be in 0..{self.symbols - 1}; got {tokens.min()}..{tokens.max()}")
        answers = numpy.empty(tokens.shape, numpy.int32)
        for row, into in zip(numpy.atleast_2d(tokens), numpy.atleast_2d(answers), strict=True):
            self._run(numpy.ascontiguousarray(row, numpy.int64), into)
        return answers

    def _run(self, tokens: Array, answers: Array) -> None:
        state, done, costs = 0, 0, self._costs
        self._alone += costs.alone(len(tokens))
        while True:
            steps, state = walk(self._following, self._outputs, state, tokens[done:], answers[done:])
            done += steps
            left = len(tokens) - done
            if not left:
                return
            enough = self._spent + costs.look + costs.alone(left) <= MOST * self._alone
            if enough and len(self._keys) < self.max_states:
                self._look(state)
                self._spent += costs.look
                continue
            piece = tokens[done : done + CHUNK]
            answers[done : done + CHUNK], after = self._network(piece, state)
            self._spent += costs.alone(len(piece))
            done += len(piece)
            if done < len(tokens):
                state = self._intern(after)

    def _network(self, tokens: Array, state: int) -> tuple[Array, bytes]:
        """The network's answers from a state on, and the key of the state then."""
        with torch.no_grad():
            logits, after = self._model(torch.from_numpy(tokens)[None], self._stepper.state([self._keys[state]]))
        return logits[0].argmax(-1).numpy(), self._stepper.key(after)

    def _look(self, state: int) -> None:
        """Put what follows a state into the tables."""
        following, answers = self._stepper.follow([self._keys[state]])
        numbers = [self._intern(key) for key in following[0]]
        self._following[state], self._outputs[state] = numbers, answers[0]

    def _intern(self, key: bytes) -> int:
        number = self._number.setdefault(key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
            if number >= len(self._following):
                more = numpy.full_like(self._following, UNKNOWN)
                self._following = numpy.concatenate([self._following, more])
                self._outputs = numpy.concatenate([self._outputs, numpy.zeros_like(more)])
        return number


def _clock(run: Callable[[], object]) -> float:
    """Seconds of the processor, which other programs do not take from; the least of three."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)
