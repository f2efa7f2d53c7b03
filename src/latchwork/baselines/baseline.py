"""What the baselines share: tokens and a state in, logits and a state out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree


class Baseline(nn.Module, ABC):
    """Tokens (B, T) to logits (B, T, vocabulary), and the state to go on from.

    A sequence in chunks gives the logits of the sequence in one call. A state is a tuple with one entry for each
    layer, tensors in named tuples; it is never changed in place.
    """

    def __init__(self, vocabulary: int, n_layers: int) -> None:
        super().__init__()
        for name, value in {"vocabulary": vocabulary, "n_layers": n_layers}.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1; got {value!r}")
        self.vocabulary, self.n_layers = vocabulary, n_layers
        self.made_of: Any = None  # the ModelConfig, if `registry.make_model` made it

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits (B, T, vocabulary) and the state after the last token; state=None is the one before any token."""
        self._check_tokens(tokens)
        if state is None:
            state = self.initial_state(tokens.shape[0])
        else:
            self._check_state(state, tokens.shape[0])
        return self._run(tokens, state)

    def stream(self, tokens: Tensor, state: Any = None, *, chunk_size: int) -> Iterator[tuple[Tensor, Any]]:
        """(logits, state) for each chunk_size tokens in turn."""
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1; got {chunk_size}")
        self._check_tokens(tokens)
        return self._pieces(tokens, state, chunk_size)

    def _pieces(self, tokens: Tensor, state: Any, chunk_size: int) -> Iterator[tuple[Tensor, Any]]:
        for start in range(0, tokens.shape[1], chunk_size):
            logits, state = self(tokens[:, start : start + chunk_size], state)
            yield logits, state

    @abstractmethod
    def initial_state(self, batch_size: int) -> Any:
        """The state before any token, as `state=None` means it."""

    @abstractmethod
    def _run(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Forward, with arguments that have been checked."""

    def parameter_count(self) -> int:
        """Trainable parameters, a shared one counted once."""
        return sum(each.numel() for each in self.parameters() if each.requires_grad)

    def _check_tokens(self, tokens: Tensor) -> None:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32) or tokens.numel() == 0:
            raise ValueError(
                "tokens must be int64 or int32 (B, T) with B and T at least 1; "
                f"got {tokens.dtype} {tuple(tokens.shape)}"
            )

    def _check_state(self, state: Any, batch_size: int) -> None:
        expected, form = pytree.tree_flatten(self.initial_state(batch_size))
        given, given_form = pytree.tree_flatten(state)
        if given_form != form:
            raise ValueError(f"state must be as this model returns it, {form}; got {given_form}")
        for before, now in zip(expected, given, strict=True):
            if not isinstance(now, Tensor) or before.shape != now.shape:
                raise ValueError(
                    f"state must be of this model and of B = {batch_size} rows, with a tensor {tuple(before.shape)}; "
                    f"got {tuple(now.shape) if isinstance(now, Tensor) else now!r}"
                )

    def _embed(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        try:
            u: Tensor = embedding(tokens)
        except IndexError:
            raise IndexError(
                f"tokens must be at least 0 and less than vocabulary = {self.vocabulary}; "
                f"got {int(tokens.min())} to {int(tokens.max())}"
            ) from None
        return u

    def _embed_and_map(
        self, embedding: nn.Embedding, tokens: Tensor, function: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The embeddings u (B, T, width), and function(u), which looks at each step by itself.

        It is computed once for each token of the vocabulary, where that is less than for each step.
        """
        u = self._embed(embedding, tokens)
        if 4 * self.vocabulary > tokens.numel():
            return u, function(u)
        return u, F.embedding(tokens, function(embedding.weight))


def detach(state: Any) -> Any:
    """The same state cut from the graph: the place where truncated backpropagation through time stops."""
    return pytree.tree_map(torch.detach, state)
