"""MinMaxRNC: the cascade of layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from latchwork.models.config import MinMaxRNCConfig
from latchwork.modules.cells import Cell, make_cells
from latchwork.modules.conv import BasicConv, GatedConv
from latchwork.modules.feedforward import FeedForward, GatedFeedForward
from latchwork.modules.layer import MinMaxLayer
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.modules.norm import norm
from latchwork.modules.state import State
from latchwork.ops import distributed


class MinMaxRNC(nn.Module):
    """u (B, T, d_model) to y of the same shape, through n_layers layers, and the state after the last step.

    gradient_checkpointing: an attribute; if true, a layer's activations are computed again in the backward pass
    instead of kept.

    >>> cascade = MinMaxRNC(MinMaxRNCConfig(d_model=16, n_layers=2, d_state=8))
    >>> y, state = cascade(torch.zeros(3, 10, 16))
    >>> y.shape
    torch.Size([3, 10, 16])
    >>> y, state = cascade(torch.zeros(3, 5, 16), state)  # the next 5 steps of the same sequences
    """

    def __init__(self, config: MinMaxRNCConfig) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self.layers = nn.ModuleList(_layer(config, number) for number in range(config.n_layers))
        if config.use_postlayers_ffn:
            self.norm_postlayers_ffn = norm(config.norm, config.d_model)
            self.postlayers_ffn = _feed_forward(config, config.ffn_dropout)
        self.norm_postlayers = norm(config.postlayers_norm, config.d_model)

    def forward(
        self,
        u: Tensor,
        state: State | None = None,
        *,
        reset: Tensor | None = None,
        chunk_size: int | None = None,
        drives: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """y and the state after the last step.

        state: what an earlier call returned, to continue its sequences; None starts new ones. reset: (B, T) bool;
        where true, a new sequence begins: recurrence and convolution see nothing before it. chunk_size: compute T in
        pieces of that many steps, so that without gradients the extra memory does not grow with T. drives: those of
        the first layer, see MinMaxLayer.
        """
        self.check(u, state, reset, chunk_size)
        if chunk_size is None or u.shape[1] <= chunk_size:
            return self._run(u, state, reset, drives)
        if drives is not None:
            raise ValueError("drives are for one piece of time: give either drives or chunk_size")
        out = None if torch.is_grad_enabled() else torch.empty_like(u)
        pieces = []
        for start in range(0, u.shape[1], chunk_size):
            piece = slice(start, start + chunk_size)
            y, state = self._run(u[:, piece], state, None if reset is None else reset[:, piece], None)
            if out is None:
                pieces.append(y)
            else:
                out[:, piece] = y
        assert state is not None
        return torch.cat(pieces, 1) if out is None else out, state

    def _run(self, u: Tensor, state: State | None, reset: Tensor | None, drives: Tensor | None) -> tuple[Tensor, State]:
        y, state = self.before_norm(u, state, reset=reset, drives=drives)
        return self.norm_postlayers(y), state

    def before_norm(
        self, u: Tensor, state: State | None = None, *, reset: Tensor | None = None, drives: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """What the last norm is given, and the state; arguments as in `forward`."""
        conv, x = [], []
        for number, layer in enumerate(self.layers):
            before = None if state is None else State(state.conv[number], state.x[number])
            if self.gradient_checkpointing and torch.is_grad_enabled():
                u, after = checkpoint(layer, u, before, reset=reset, drives=drives, use_reentrant=False)
            else:
                u, after = layer(u, before, reset=reset, drives=drives)
            conv.append(after.conv)
            x.append(after.x)
            drives = None  # they are those of the first layer
        if self.config.use_postlayers_ffn:
            u = u + self.postlayers_ffn(self.norm_postlayers_ffn(u))
        return u, State(torch.stack(conv), torch.stack(x))

    def initial_state(self, batch_size: int) -> State:
        """The state before any input, as `state=None` means it."""
        parameter = next(self.parameters())
        conv = parameter.new_zeros(len(self.layers), batch_size, self.config.d_model)
        x = torch.stack([layer.neuron.start().expand(batch_size, -1) for layer in self.layers])  # type: ignore[union-attr,operator]
        return State(conv, x)

    def check(self, u: Tensor, state: State | None, reset: Tensor | None, chunk_size: int | None) -> None:
        """Raise an error that names the argument that is wrong, what it must be and what it was."""
        c = self.config
        if u.dim() != 3 or u.shape[-1] != c.d_model:
            raise ValueError(f"u must be (B, T, d_model = {c.d_model}); got {tuple(u.shape)}")
        self.check_rest((u.shape[0], u.shape[1]), state, reset, chunk_size)

    def check_rest(
        self, shape: tuple[int, int], state: State | None, reset: Tensor | None, chunk_size: int | None
    ) -> None:
        """`check` of what comes with u, or with the tokens of a language model, of shape (B, T)."""
        neuron: MinMaxNeuron = self.layers[0].neuron  # type: ignore[assignment]
        for name, width in (("conv", neuron.d_model), ("x", neuron.d_state)):
            expected = (len(self.layers), shape[0], width)
            if state is not None and (found := tuple(getattr(state, name).shape)) != expected:
                raise ValueError(f"state.{name} must be (n_layers, B, {width}) = {expected}; got {found}")
        if reset is not None and (reset.dtype != torch.bool or reset.shape != shape):
            raise ValueError(f"reset must be bool (B, T) = {shape}; got {reset.dtype} {tuple(reset.shape)}")
        if chunk_size is not None:
            distributed.refuse("chunk_size")
            if chunk_size < 1:
                raise ValueError(f"chunk_size must be at least 1, or None; got {chunk_size}")


def _feed_forward(config: MinMaxRNCConfig, dropout: float) -> FeedForward | GatedFeedForward:
    kind = GatedFeedForward if config.ffn_type == "gated" else FeedForward
    return kind(
        config.d_model,
        proj_factor=config.ffn_proj_factor,
        act_fn=config.ffn_act_fn,
        dropout=dropout,
        init=config.ffn_init,
        n_layers=config.n_layers,
    )


def cells_of(config: MinMaxRNCConfig) -> list[Cell]:
    """The cells of one layer, new."""
    return make_cells(
        config.d_state,
        degree=config.degree,
        reset_form=config.reset_form,
        extra_units=config.extra_units,
        levels=config.levels,
    )


def _layer(config: MinMaxRNCConfig, number: int) -> MinMaxLayer:
    conv = BasicConv(config.d_model) if config.conv_type == "basic" else GatedConv(config.d_model, config.conv_init_val)
    neuron = MinMaxNeuron(
        config.d_model,
        cells_of(config),
        output_gate=config.output_gate,
        train_init=config.train_init,
        dropout=config.neuron_dropout,
        s_r_init=config.s_r_init,
        n_layers=config.n_layers,
    )
    ffn = _feed_forward(config, config.ffn_dropout if number else config.prelayers_dropout)
    return MinMaxLayer(conv=conv, ffn=ffn, neuron=neuron, norm_type=config.norm)
