"""A network run as a machine that is found on the way."""

from __future__ import annotations

import copy

import numpy
import torch

from latchwork.automata.step import Stepper
from latchwork.automata.walk import walk
from latchwork.models import MinMaxRNC_LM

Array = numpy.ndarray
UNKNOWN = -1
CLOSE = 32  # steps; two misses no further apart are close
PATIENCE = 16  # close misses in a row, after which states are taken not to repeat
AGAIN = 4  # misses after that, before it does so again
SHORTEST, LONGEST = 64, 1 << 16  # steps that the network then takes by itself


class LazyMachine:
    """Answers as the network does, from tables that fill as it goes: what has been seen is looked up.

    A state and token not seen before are given to the network (automata/step.py). Where states do not repeat, the
    network runs over more and more steps at once, without tables, and these are tried again in between: then the cost
    is that of the network. max_states: no more states are put into the tables.
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
        state, done, close, chunk = 0, 0, 0, SHORTEST
        while True:
            steps, state = walk(self._following, self._outputs, state, tokens[done:], answers[done:])
            done += steps
            if done == len(tokens):
                return
            if steps <= CLOSE:
                close += 1
            else:
                close, chunk = 0, SHORTEST
            full = len(self._keys) >= self.max_states
            if close < PATIENCE and not full:
                self._look(state)
                continue
            piece = torch.from_numpy(tokens[done : done + chunk])[None]
            with torch.no_grad():
                logits, after = self._model(piece, self._stepper.state([self._keys[state]]))
            answers[done : done + chunk] = logits[0].argmax(-1).numpy()
            done += piece.shape[1]
            if done == len(tokens):
                return
            state = self._intern(self._stepper.key(after))
            chunk, close = min(2 * chunk, LONGEST), PATIENCE - AGAIN

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
