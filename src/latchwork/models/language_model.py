"""MinMaxRNC_LM: embedding, backbone, head."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from latchwork.models import checkpoint, fast_head, generation, token_pairs
from latchwork.models.backbone import MinMaxRNC
from latchwork.models.config import MinMaxRNCLMConfig
from latchwork.models.token_pairs import NOTHING, Known
from latchwork.modules.init import small_init_init_
from latchwork.modules.linear import Linear, has_hooks
from latchwork.modules.state import State
from latchwork.ops import distributed
from latchwork.ops.cross_entropy import linear_cross_entropy, mean_cross_entropy
from latchwork.ops.torch.cross_entropy import first_of_largest


class MinMaxRNC_LM(nn.Module):
    """Tokens (B, T) to logits (B, T, vocab_size), and the state after the last token.

    Tokens, prompts and targets are int64 or int32; bool, smaller integers and floats are errors, here as in every
    method. With tie_weights the head is the embedding, transposed; without it the head has its own matrix.

    >>> model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small())
    >>> tokens = torch.randint(20, (4, 33))
    >>> loss, state = model.loss(tokens[:, :-1], tokens[:, 1:])
    >>> loss.backward()
    >>> model.generate([[1, 2, 3], [4]], 5, temperature=0).shape
    torch.Size([2, 5])
    """

    def __init__(self, vocab_size: int, config: MinMaxRNCLMConfig) -> None:
        super().__init__()
        if not isinstance(config, MinMaxRNCLMConfig):
            raise TypeError(f"config must be a MinMaxRNCLMConfig; got {type(config).__name__}")
        if not isinstance(vocab_size, int) or vocab_size < 1:
            raise ValueError(f"vocab_size must be an integer of at least 1; got {vocab_size!r}")
        self.vocab_size, self.config = vocab_size, config
        d_model = config.backbone.d_model
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.backbone = MinMaxRNC(config.resolved_backbone)
        self.head_dropout = nn.Dropout(config.head_dropout)
        self.head = Linear(d_model, vocab_size, bias=False)
        if config.embedding_init == "small_init":
            small_init_init_(self.embedding.weight, d_model)
        else:
            nn.init.normal_(self.embedding.weight)
        if config.tie_weights:
            self.head.weight = self.embedding.weight
        else:
            small_init_init_(self.head.weight, d_model)

    def __repr__(self) -> str:
        """One line: sizes. `print(model)` shows torch's tree of modules.

        >>> MinMaxRNC_LM(20, MinMaxRNCLMConfig.small())
        MinMaxRNC_LM(vocab_size=20, d_model=90, n_layers=2, d_state=40, 129,232 parameters)
        """
        shape = self.backbone.config
        sizes = ", ".join(f"{name}={getattr(shape, name)}" for name in ("d_model", "n_layers", "d_state"))
        return f"{type(self).__name__}(vocab_size={self.vocab_size}, {sizes}, {self.parameter_count():,} parameters)"

    def __str__(self) -> str:
        """The tree of modules, as torch prints it."""
        return super().__repr__()

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        *,
        reset: Tensor | None = None,
        chunk_size: int | None = None,
    ) -> tuple[Tensor, State]:
        """Logits (B, T, vocab_size) and the state after the last token; arguments as in MinMaxRNC.

        With chunk_size only the logits grow with T. `stream` gives them in pieces, to be reduced one by one.
        """
        self.check(tokens, state, reset, chunk_size)
        if chunk_size is None or tokens.shape[1] <= chunk_size:
            return self._run(tokens, state, reset)
        pieces: list[Tensor] = []
        out, start = None, 0
        after = state
        for logits, after in self._pieces(tokens, state, reset, chunk_size):  # noqa: B007 - the last is returned
            if torch.is_grad_enabled():
                pieces.append(logits)
                continue
            if out is None:
                out = logits.new_empty(*tokens.shape, self.vocab_size)
            out[:, start : start + chunk_size] = logits
            start += chunk_size
        assert after is not None
        return torch.cat(pieces, 1) if out is None else out, after

    def stream(
        self,
        tokens: Tensor,
        state: State | None = None,
        *,
        chunk_size: int,
        reset: Tensor | None = None,
    ) -> Iterator[tuple[Tensor, State]]:
        """(logits, state) for each chunk_size tokens in turn: a sequence of any length in constant memory.

        >>> model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval()
        >>> with torch.no_grad():
        ...     [tuple(logits.shape) for logits, state in model.stream(torch.zeros(1, 10).long(), chunk_size=4)]
        [(1, 4, 20), (1, 4, 20), (1, 2, 20)]
        """
        self.check(tokens, state, reset, chunk_size)
        return self._pieces(tokens, state, reset, chunk_size)

    def _pieces(
        self, tokens: Tensor, state: State | None, reset: Tensor | None, chunk_size: int
    ) -> Iterator[tuple[Tensor, State]]:
        for piece, known in self._slices(tokens, chunk_size):
            logits, state = self._run(tokens[:, piece], state, None if reset is None else reset[:, piece], known)
            yield logits, state

    def _slices(self, tokens: Tensor, chunk_size: int) -> Iterator[tuple[slice, Known]]:
        table = token_pairs.drive_table(self, tokens.numel())
        for start in range(0, tokens.shape[1], chunk_size):
            yield slice(start, start + chunk_size), Known(table, tokens[:, start - 1] if start else None)

    def _run(
        self, tokens: Tensor, state: State | None, reset: Tensor | None, known: Known = NOTHING
    ) -> tuple[Tensor, State]:
        y, state = self._hidden(tokens, state, reset, known)
        return self.head(self.head_dropout(y)), state

    def hidden(
        self, tokens: Tensor, state: State | None = None, *, reset: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """What the head is given, (B, T, d_model), and the state; arguments as in `forward`."""
        self.check(tokens, state, reset, None)
        return self._hidden(tokens, state, reset)

    def _hidden(
        self,
        tokens: Tensor,
        state: State | None,
        reset: Tensor | None,
        known: Known = NOTHING,
        with_norm: bool = True,
    ) -> tuple[Tensor, State]:
        try:
            u = self.embedding(tokens)
        except IndexError:
            raise IndexError(
                f"tokens must be at least 0 and less than vocab_size = {self.vocab_size}; "
                f"got {int(tokens.min())} to {int(tokens.max())}"
            ) from None
        drives = token_pairs.first_drives(self, tokens, state, reset, known)
        run = self.backbone if with_norm else self.backbone.before_norm
        y, state = run(u, state, reset=reset, drives=drives)
        return y, state

    @torch.no_grad()
    def predict(
        self,
        tokens: Tensor,
        state: State | None = None,
        *,
        reset: Tensor | None = None,
        chunk_size: int | None = None,
    ) -> tuple[Tensor, State]:
        """The best token after each token, (B, T) int64, and the state after the last; arguments as in `forward`.

        It is `forward(...)[0].argmax(-1)`, without gradients and without the logits, which are never all in memory.
        Where a logit is a NaN the answer is -1. With chunk_size only the answers grow with T.

        >>> model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval()
        >>> answers, state = model.predict(torch.zeros(2, 1000).long(), chunk_size=300)
        >>> answers.shape, answers.dtype
        (torch.Size([2, 1000]), torch.int64)
        """
        self.check(tokens, state, reset, chunk_size)
        if chunk_size is None or tokens.shape[1] <= chunk_size:
            return self._best(tokens, state, reset)
        found = tokens.new_empty(tokens.shape, dtype=torch.int64)
        for piece, known in self._slices(tokens, chunk_size):
            reset_here = None if reset is None else reset[:, piece]
            found[:, piece], state = self._best(tokens[:, piece], state, reset_here, known)
        assert state is not None
        return found, state

    def _best(
        self, tokens: Tensor, state: State | None, reset: Tensor | None, known: Known = NOTHING
    ) -> tuple[Tensor, State]:
        if not fast_head.is_as_made(self):
            logits, state = self._run(tokens, state, reset, known)
            return first_of_largest(logits), state
        y, state = self._hidden(tokens, state, reset, known, with_norm=False)
        return fast_head.best(self, y), state

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        state: State | None = None,
        *,
        reset: Tensor | None = None,
        ignore_index: int = -100,
    ) -> tuple[Tensor, State]:
        """Mean cross-entropy with targets (B, T), leaving out those equal to ignore_index; and the state.

        If all are left out the loss is 0, and so is its gradient: padding changes nothing. (torch's `F.cross_entropy`
        has NaN, which would end a training.) A target that is neither a token nor ignore_index is an error.
        The logits are never all in memory at once, which for a large vocabulary saves most of it. To call it on a
        model under FSDP, register it:
        `torch.distributed.fsdp.register_fsdp_forward_method(model, "loss")`.
        """
        self.check(tokens, state, reset, None)
        if targets.shape != tokens.shape:
            raise ValueError(f"targets must be (B, T) = {tuple(tokens.shape)}, as tokens; got {tuple(targets.shape)}")
        y, state = self._hidden(tokens, state, reset)
        y, targets = self.head_dropout(y), targets.flatten()
        if type(self.head) is not Linear or has_hooks(self.head):
            loss = mean_cross_entropy(self.head(y).flatten(0, 1), targets, ignore_index)
        else:
            loss = linear_cross_entropy(y.flatten(0, 1), self.head.weight, targets, ignore_index)
        if distributed.is_split():
            loss = distributed.mean_over_ranks(loss, (targets != ignore_index).sum())
        return loss, state

    def generate(
        self,
        prompt: generation.Prompt,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_token: int | None = None,
    ) -> Tensor:
        """Continue prompts and return the new tokens only: (B, max_new_tokens), or fewer if every row has stopped.

        prompt: (T,) or (B, T) tokens, or a list of prompts of any lengths; each is continued as if it were alone.
        Logits that hold a NaN, or whose largest is infinite, are an error.
        temperature: 0 takes the best token. top_k: draw from the k best only. top_p: draw from the fewest tokens that
        together have this probability. seed: of the draws; None takes torch's own generator. stop_token: a row that
        has drawn it repeats it.
        """
        steps = list(
            self.generate_stream(
                prompt,
                max_new_tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                stop_token=stop_token,
            )
        )
        if steps:
            return torch.stack(steps, 1)
        tokens, _ = generation.align_prompts(prompt, self.embedding.weight.device)
        return tokens[:, :0]

    generate_stream = generation.generate_stream

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors into folder, each whole or not at all."""
        checkpoint.save(self, folder)

    @staticmethod
    def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> MinMaxRNC_LM:
        """The model that `save` wrote, in eval mode. A file that is corrupt, foreign or does not fit is an error."""
        return checkpoint.load(folder, device)

    def initial_state(self, batch_size: int) -> State:
        """The state before any token, as `state=None` means it."""
        return self.backbone.initial_state(batch_size)

    def parameter_count(self) -> int:
        """Trainable parameters, a shared one counted once."""
        return sum(each.numel() for each in self.parameters() if each.requires_grad)

    def check(self, tokens: Tensor, state: State | None, reset: Tensor | None, chunk_size: int | None) -> None:
        """Raise an error that names the argument that is wrong, what it must be and what it was."""
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"tokens must be int64 or int32 (B, T); got {tokens.dtype} {tuple(tokens.shape)}")
        self.backbone.check_rest((tokens.shape[0], tokens.shape[1]), state, reset, chunk_size)
