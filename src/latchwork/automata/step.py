"""One step of a network from many states at once, always computed one way, so that it is a function of state and token.

A product of matrices of another shape may round differently. So a step is always taken by ROWS rows at once, filled up
where there are fewer. Even then a BLAS may add up the products of one row in another order than those of the next: MKL
does for some small widths, on one thread too. So products are taken here row by row (`RowByRow`), and the outcome of a
row does not depend on the others, nor on its place, which is checked.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from latchwork.models import MinMaxRNC_LM
from latchwork.modules.state import State

Array = numpy.ndarray
ROWS = 64
PRODUCTS = 1 << 18  # held at once, in a cache


class RowByRow(TorchFunctionMode):
    """F.linear as products and their sum, entry by entry, so that equal rows give equal bits wherever they stand."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call func, or `_linear` in its place."""
        return (_linear if func is F.linear else func)(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = torch.split(input.reshape(-1, 1, input.shape[-1]), max(1, PRODUCTS // weight.numel()))
    y = torch.cat([(each * weight).sum(-1) for each in rows]).view(*input.shape[:-1], len(weight))
    return y if bias is None else y + bias


class Stepper:
    """A network, stepped. States are bytes: equal bytes are equal states."""

    def __init__(self, model: MinMaxRNC_LM, symbols: int | None = None) -> None:
        if symbols is not None and not 1 <= symbols <= model.vocab_size:
            raise ValueError(f"symbols must be in 1..vocab_size = {model.vocab_size}; got {symbols}")
        self.model = model
        self.symbols = model.vocab_size if symbols is None else symbols
        with torch.no_grad():
            self.start = model.initial_state(1)
        self._shapes = [each.shape for each in self.start]
        self._kind = self.start.x.dtype
        self._check()

    def key(self, state: State, row: int = 0) -> bytes:
        """The bytes of one row of a state. 0 and -0 are one."""
        return b"".join((each[:, row] + 0.0).contiguous().numpy().tobytes() for each in state)

    def state(self, keys: list[bytes]) -> State:
        """The state of these rows."""
        parts, begin = [], 0
        for shape in self._shapes:
            size = shape[0] * shape[2] * self._kind.itemsize
            rows = [
                torch.frombuffer(bytearray(key[begin : begin + size]), dtype=self._kind).view(shape[0], shape[2])
                for key in keys
            ]
            parts.append(torch.stack(rows, 1))
            begin += size
        return State(*parts)

    def follow(self, keys: list[bytes]) -> tuple[list[list[bytes]], Array]:
        """For each state and each symbol the state that follows, and the answers (states, symbols)."""
        following: list[bytes] = []
        answers: list[int] = []
        tokens = torch.arange(self.symbols).repeat(len(keys))
        index = torch.arange(len(keys)).repeat_interleave(self.symbols)
        everything = self.state(keys)
        for first in range(0, len(tokens), ROWS):
            part = slice(first, first + ROWS)
            rows = index[part]
            states, said = self._step(State(*(each[:, rows] for each in everything)), tokens[part])
            following.extend(self.key(states, row) for row in range(len(rows)))
            answers.extend(said[: len(rows)].tolist())
        table = [following[k : k + self.symbols] for k in range(0, len(following), self.symbols)]
        return table, numpy.array(answers).reshape(len(keys), self.symbols)

    def _step(self, state: State, tokens: Tensor) -> tuple[State, Tensor]:
        missing = ROWS - len(tokens)
        if missing:
            tokens = torch.cat((tokens, tokens[:1].expand(missing)))
            state = State(*(torch.cat((each, each[:, :1].expand(-1, missing, -1)), 1) for each in state))
        with torch.no_grad(), RowByRow():
            logits, after = self.model(tokens[:, None], state)
        return after, logits[:, 0].argmax(-1)

    def _check(self) -> None:
        """That a row's outcome does not depend on its place."""
        tokens = torch.arange(ROWS) % self.symbols
        state = State(*(each.expand(-1, ROWS, -1).contiguous() for each in self.start))
        once, _ = self._step(state, tokens)
        twice, _ = self._step(once, tokens.flip(0))
        turned, _ = self._step(State(*(each.roll(1, 1) for each in once)), tokens.flip(0).roll(1))
        if not all(bool(each.isfinite().all()) for each in twice):
            raise ValueError("model must have states that are finite: there is a NaN or an infinity after two steps")
        if not all(torch.equal(one.roll(1, 1), other) for one, other in zip(twice, turned, strict=True)):
            raise RuntimeError(
                "the network's step depends on the place of a row in its batch: a part of it mixes the rows, draws "
                "random numbers, or splits a row among threads; call torch.set_num_threads(1) if there are several"
            )
