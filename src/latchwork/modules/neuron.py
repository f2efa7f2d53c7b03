"""The recurrent cell: projections of the input, the recurrence, the output gate."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from latchwork.modules.init import (
    bank_init_,
    choice_init_,
    kaiming_init_,
    levels_init_,
    permutation_init_,
    small_init_init_,
    spread_init_,
    wang_init_,
)
from latchwork.modules.linear import Linear
from latchwork.modules.units import Units
from latchwork.ops.bank import Bank, drive_bank, read_bank

S_R_INITS = ("small_init", "kaiming", "asymmetric", "spread")


class MinMaxNeuron(nn.Module):
    """y = W_o (x * sigmoid(W_g u)), with x_t = max(min(r_t, x_{t-1}), s_t), r = W_r u + b_r, s = W_s u + b_s.

    d_state: the number of state scalars. degree n: they form d_state / n units, and r is n x n for each.
    reset_form: how the input gives r and s for degree > 1: "free", as above, or "selection", "permutation" or
    "transformation", where every step moves whole levels (modules/units.py). groups: units that stand beside these, as
    (number, degree) each; the attribute d_state counts theirs too.
    levels: round r, s and x0 to that many levels in [-1, 1], so that the states live on a finite grid.
    blur: of degree one, numbers within it of each other share the gradient (ops/blur.py); 0 for the exact gradient.
    bank K: of degree one, K state scalars have one pair r, s, shifted for each by learnt numbers, and one sum of them,
    with learnt weights, goes through the gate (ops/bank.py). Pairs, gates and columns of W_o are then d_state / K.
    output_gate: without it, y = W_o x. train_init: learn x0. dropout: of the input. s_r_init: "small_init", "kaiming",
    "asymmetric" or "spread", which is small_init with a level of its own for each scalar of degree one
    (modules/init.py). For degree > 1 it initialises s alone, one below what it is for degree one;
    R then starts between two permutations (`permutation_init_`), or where it moves whole levels near no preference
    (`choice_init_`), and x0 at distinct levels.
    n_layers: of the cascade this neuron is part of, for the initial scale of W_o.

    For each block of units r and s, then the gate, are rows of one matrix, `projection`, so that they are one product.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        degree: int = 1,
        reset_form: str = "free",
        groups: Sequence[tuple[int, int]] = (),
        levels: int | None = None,
        blur: float = 0.0,
        bank: int = 1,
        output_gate: bool = True,
        train_init: bool = False,
        dropout: float = 0.0,
        s_r_init: str = "small_init",
        n_layers: int = 1,
    ) -> None:
        super().__init__()
        if s_r_init not in S_R_INITS:
            raise ValueError(f"s_r_init must be one of {', '.join(S_R_INITS)}; got {s_r_init!r}")
        if degree < 1 or d_state % degree:
            raise ValueError(
                f"d_state must be a multiple of degree, at least 1; got d_state {d_state}, degree {degree}"
            )
        if levels is not None and levels < 2:
            raise ValueError(f"levels must be at least 2, or None; got {levels}")
        if not 0 <= blur < float("inf"):
            raise ValueError(f"blur must be at least 0 and finite; got {blur}")
        if blur and degree > 1:
            raise ValueError(f"blur must be 0 for a degree of more than 1; got {blur} and degree {degree}")
        if bank < 1 or d_state % bank:
            raise ValueError(f"d_state must be a multiple of bank, at least 1; got d_state {d_state}, bank {bank}")
        if bank > 1 and (degree > 1 or levels is not None):
            raise ValueError(f"bank must be 1 for a degree of more than 1, and where there are levels; got {bank}")
        if degree == 1 and reset_form != "free" and not groups:
            raise ValueError(f"reset_form must be 'free' where all degrees are 1; got {reset_form!r}")
        if any(number < 1 or of < 2 for number, of in groups):
            raise ValueError(f"groups must be (number, degree) each, at least (1, 2); got {groups!r}")
        blocks = [Units(d_state, degree, "free" if degree == 1 else reset_form, levels, blur)]
        blocks += [Units(number * of, of, reset_form, levels) for number, of in groups]
        self.blocks = tuple(blocks)
        self.d_model, self.degree, self.levels, self.blur, self.bank = d_model, degree, levels, blur, bank
        self.d_state = sum(block.size for block in blocks)
        self.d_read = self.d_state - d_state + d_state // bank  # what is read of the states: all, or sums of some
        self.output_gate = output_gate
        self.backend = "auto"  # of minmax_scan
        self.temperature = 1.0  # of the surrogate gradient, where steps move whole levels; see `set_temperature`
        widths = [width for block in blocks for width in block.widths]
        if bank > 1:
            widths[:2] = [d_state // bank] * 2
            self.shift_r, self.shift_s, self.read_weight = (nn.Parameter(torch.empty(d_state)) for _ in range(3))
        self.widths = widths + [self.d_read] * output_gate
        self.dropout = nn.Dropout(dropout)
        self.projection = Linear(d_model, sum(self.widths))
        self.output = Linear(self.d_read, d_model)
        x0 = torch.zeros(self.d_state)
        if train_init:
            self.x0 = nn.Parameter(x0)
        else:
            self.register_buffer("x0", x0)
        self._initialise(s_r_init, n_layers)

    def _initialise(self, s_r_init: str, n_layers: int) -> None:
        weights = self.projection.weight.detach().split_with_sizes(self.widths)
        biases = self.projection.bias.detach().split_with_sizes(self.widths)
        nn.init.zeros_(self.projection.bias)
        for weight in weights:
            small_init_init_(weight, self.d_model)
        for number, (block, x0) in enumerate(zip(self.blocks, self._split(self.x0.detach()), strict=True)):
            (weight_r, weight_s), (bias_r, bias_s) = (each[2 * number : 2 * number + 2] for each in (weights, biases))
            n = block.degree
            if block.form != "free":
                choice_init_(weight_r, weight_s, self.d_model)
                levels_init_(x0.view(-1, n), lowest=0.0 if block.form == "transformation" else -1.0)
                continue
            if s_r_init == "kaiming":
                kaiming_init_(weight_r)
            if s_r_init in ("kaiming", "asymmetric"):
                kaiming_init_(weight_s)
            if s_r_init == "asymmetric":
                bias_s.fill_(1.0)
            if s_r_init == "spread" and n == 1:
                spread_init_(bias_r, bias_s)
            if n > 1:
                permutation_init_(weight_r.view(-1, n, n, self.d_model), bias_r.view(-1, n, n))
                bias_s.sub_(1.0)
                levels_init_(x0.view(-1, n))
        if self.bank > 1:
            shift_r, shift_s, weight = (each.detach().view(self.bank, -1) for each in self.latches())
            bank_init_(shift_r, shift_s, weight)
        wang_init_(self.output.weight, self.d_read, n_layers)
        nn.init.zeros_(self.output.bias)

    def latches(self) -> Bank:
        """What makes the latches of a bank differ, where there is one."""
        return Bank(self.shift_r, self.shift_s, self.read_weight)

    def _drives(self, z: Tensor) -> list[Tensor]:
        """Of `project`'s z what drives each block: its r and s side by side, for every latch."""
        sizes = [sum(self.widths[2 * number : 2 * number + 2]) for number in range(len(self.blocks))]
        parts = list(z[..., : sum(sizes)].split_with_sizes(sizes, dim=-1))
        if self.bank > 1:
            shifted = zip(parts[0].chunk(2, -1), self.latches()[:2], strict=True)
            parts[0] = torch.cat([drive_bank(signal, shift) for signal, shift in shifted], -1)
        return parts

    def read(self, x: Tensor) -> Tensor:
        """What goes through the gate, (..., d_read), of the states x (..., d_state)."""
        if self.bank == 1:
            return x
        first, *others = self._split(x)
        return torch.cat((read_bank(first, self.read_weight, self.bank), *others), -1)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        """x (..., d_state), a piece for each block."""
        return x.split_with_sizes([block.size for block in self.blocks], dim=-1) if len(self.blocks) > 1 else (x,)

    def project(self, u: Tensor) -> Tensor:
        """r, s and the gate's logits side by side, for u (..., d_model)."""
        z: Tensor = self.projection(self.dropout(u))
        return z

    def signals(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """r, s and the gate's logits, or None, out of `project`'s z: (..., D), or (..., U, N, N) and (..., U, N)."""
        if len(self.blocks) > 1:
            raise ValueError("a neuron with groups has several r and s: ask each of its blocks")
        (block,) = self.blocks
        gate = z[..., -self.d_read :] if self.output_gate else None
        return *block.signals(self._drives(z)[0], self.start()), gate

    def start(self) -> Tensor:
        """x0 as the recurrence sees it: on the grid if there is one; (D,), or (U, N). With groups, (D,) of all."""
        parts = [block.begin(x0) for block, x0 in zip(self.blocks, self._split(self.x0), strict=True)]
        x0 = torch.cat(parts) if len(parts) > 1 else parts[0]
        return x0 if self.degree == 1 or len(self.blocks) > 1 else x0.view(-1, self.degree)

    def states(self, z: Tensor, x: Tensor | None = None, *, reset: Tensor | None = None) -> Tensor:
        """Every state (B, T, d_state) from `project`'s z (B, T, ...), x (B, d_state) being the state before."""
        starts = self._split(self.start().flatten())
        befores = [None] * len(self.blocks) if x is None else self._split(x)
        parts = []
        for block, drive, x0, before in zip(self.blocks, self._drives(z), starts, befores, strict=True):
            x0 = x0 if block.degree == 1 else x0.view(-1, block.degree)
            parts.append(block.states(drive, x0, before, reset, self.backend, self.temperature))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def recur(self, z: Tensor, x: Tensor | None = None, *, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The rest of `forward` after `project`."""
        states = self.states(z, x, reset=reset)
        if z.shape[1]:
            last = states[:, -1]
        else:
            last = self.start().to(z.dtype).flatten().expand(z.shape[0], -1) if x is None else x
        read = self.read(states)
        if self.output_gate:
            read = read * torch.sigmoid(z[..., -self.d_read :])
        return self.output(read), last

    def forward(self, u: Tensor, state: Tensor | None = None, *, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """u (B, T, d_model), state (B, d_state). Returns y like u, and the last state."""
        return self.recur(self.project(u), state, reset=reset)


def set_temperature(model: nn.Module, temperature: float) -> None:
    """Of every neuron in a model, the temperature of its surrogate gradient: at 1 as made.

    Where steps move whole levels, the gradient is that of a softmax of the logits, and vanishes where the choice has
    become sure, be it right or wrong. A higher temperature keeps it alive; no output depends on it.
    """
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive and finite; got {temperature}")
    for module in model.modules():
        if isinstance(module, MinMaxNeuron):
            module.temperature = temperature
