"""What the latches of a model do: how often each is set, reset or held, and which never move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latchwork.evaluation.accuracy import ModeGap, mode_gap
from latchwork.markup import element, table
from latchwork.models import MinMaxRNC, MinMaxRNC_LM
from latchwork.modules import Cell, MinMaxNeuron, State
from latchwork.tasks.task import Batch

CAUSES = ("set", "reset", "moved", "held")
WatchCell = Callable[[Cell, Tensor, Tensor, Tensor, Tensor], None]  # cell, z, x0, states before each step, and after


@dataclass(frozen=True, kw_only=True)
class LatchReport:
    """How often each state scalar of each layer was set, reset, moved and held, as counts (n_layers, d_state), int64.

    Each step has exactly one cause. Degree one, with m = min(r_t, x_{t-1}): *set* if s_t > m, so that x_t = s_t; else
    *held* if x_{t-1} <= r_t, so that x_t = x_{t-1}; else *reset*, and x_t = r_t < x_{t-1}. So a tie with the state that
    was there is held, and one of r with s is a reset. Degree n, for component i, with m_k = min(r_t[i, k], x_{t-1}[k]):
    *set* if s_t[i] > m_k for all k; else, of the k whose m_k is the largest, *held* if x_{t-1}[i] is one of them and
    passed its r, *moved* if another x_{t-1}[k] passed, else *reset*: the value is an entry of r. A NaN is a reset.

    dead: the held steps from x_{t-1} = x0 in which everything else was strictly smaller, and r strictly larger; with
    x0 = 0 and degree one, s_t < 0 < r_t. Nothing that enters is seen there, and r and s get no gradient.
    left: bool, whether the scalar was ever different from x0. lowest, highest: its values. steps: B T, what the counts
    are out of. state: after the last step, to go on from. mode_gap: the accuracy with dropout on and off, where targets
    were given and the model has dropout.
    """

    steps: int
    set: Tensor
    reset: Tensor
    moved: Tensor
    held: Tensor
    dead: Tensor
    left: Tensor
    lowest: Tensor
    highest: Tensor
    state: State
    mode_gap: ModeGap | None = None

    def share(self, name: str) -> Tensor:
        """Of "set", "reset", "moved", "held" or "dead", the share of steps, float64; the first four sum to one."""
        if name not in (*CAUSES, "dead"):
            raise ValueError(f"name must be one of {', '.join(CAUSES)}, dead; got {name!r}")
        counts: Tensor = getattr(self, name)
        return counts.double() / self.steps

    @property
    def stuck(self) -> Tensor:
        """(n_layers,): the share of scalars that never left x0."""
        return 1 - self.left.double().mean(-1)

    def merge(self, then: LatchReport) -> LatchReport:
        """Both reports as one, of the steps of this one and then those of the other, as for two chunks of a stream."""
        if then.set.shape != self.set.shape:
            raise ValueError(
                f"then must be of the same model, (n_layers, d_state) = {tuple(self.set.shape)}; "
                f"got {tuple(then.set.shape)}"
            )
        return LatchReport(
            steps=self.steps + then.steps,
            **{name: getattr(self, name) + getattr(then, name) for name in (*CAUSES, "dead")},
            left=self.left | then.left,
            lowest=torch.minimum(self.lowest, then.lowest),
            highest=torch.maximum(self.highest, then.highest),
            state=then.state,
            mode_gap=then.mode_gap or self.mode_gap,
        )

    def _rows(self) -> list[list[str]]:
        """Headings, then for each layer the mean shares in percent, and the range of values."""
        names = (*CAUSES, "dead")
        rows = [["layer", *names, "stuck", "from", "to"]]
        for layer in range(len(self.left)):
            shares = [self.share(name)[layer].mean().item() for name in names] + [self.stuck[layer].item()]
            low, high = self.lowest[layer].min().item(), self.highest[layer].max().item()
            rows.append([str(layer), *(f"{100 * each:.1f}%" for each in shares), f"{low:.3g}", f"{high:.3g}"])
        return rows

    def _gap(self) -> list[str]:
        """What is said of the two modes, if they were compared."""
        if (gap := self.mode_gap) is None:
            return []
        text = f"right answers: {gap.training:.1%} in training mode, {gap.evaluation:.1%} in evaluation mode"
        return [text] if gap.warning is None else [text, gap.warning]

    def __str__(self) -> str:
        """A table, one line a layer: mean shares in percent, and the range of values."""
        lines = [f"{row[0]:>5} " + "".join(f"{each:>8}" for each in row[1:]) for row in self._rows()]
        return "\n".join([*lines, *self._gap()])

    def _repr_html_(self) -> str:
        header, *rows = self._rows()
        return table(header, rows) + "".join(element("p", each) for each in self._gap())


def latch_report(
    model: MinMaxRNC_LM | MinMaxRNC,
    inputs: Tensor,
    state: State | None = None,
    *,
    reset: Tensor | None = None,
    targets: Tensor | None = None,
) -> LatchReport:
    """Run the model on inputs, in the mode it is in and without gradients, and count what its latches do.

    inputs: tokens (B, T) for a MinMaxRNC_LM, (B, T, d_model) for a MinMaxRNC, with B and T at least 1. state, reset: as
    the model takes them; where a sequence begins, the state before is x0. For a stream, give each chunk the state of
    the report before and `merge` them: the result is that of one piece. targets: (B, T), the answers from the first
    step on, for a MinMaxRNC_LM; then the report compares training mode and evaluation mode (`mode_gap`).

    >>> from latchwork import MinMaxRNCLMConfig
    >>> model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval()
    >>> tokens = torch.arange(20).view(2, 10)
    >>> first = latch_report(model, tokens[:, :4])
    >>> both = first.merge(latch_report(model, tokens[:, 4:], first.state))
    >>> both.steps, bool((both.held == latch_report(model, tokens).held).all())
    (20, True)
    """
    found: list[dict[str, Tensor]] = []

    def count(cell: Cell, z: Tensor, x0: Tensor, before: Tensor, x: Tensor) -> None:
        columns = {name: which.flatten(2).sum((0, 1)) for name, which in causes(cell, z, x0, before).items()}
        found.append({**columns, "left": (x != x0).any(1).any(0), "lowest": x.amin((0, 1)), "highest": x.amax((0, 1))})

    after = _run(model, inputs, state, reset, count)
    stacked = {name: _by_layer(model, [each[name] for each in found]) for name in found[0]}
    gap = None if targets is None else mode_gap(model, Batch(inputs, targets))
    return LatchReport(steps=inputs.shape[0] * inputs.shape[1], state=after, mode_gap=gap, **stacked)


def latch_states(
    model: MinMaxRNC_LM | MinMaxRNC, inputs: Tensor, state: State | None = None, *, reset: Tensor | None = None
) -> Tensor:
    """Every state of every layer, (n_layers, B, T, d_state); arguments as in `latch_report`."""
    found: list[Tensor] = []
    _run(model, inputs, state, reset, lambda cell, z, x0, before, x: found.append(x))
    return _by_layer(model, found)


def _by_layer(model: MinMaxRNC_LM | MinMaxRNC, parts: list[Tensor]) -> Tensor:
    """What each cell told, (..., size), as one tensor (n_layers, ..., d_state)."""
    each = len(parts) // len(_neurons(model))
    return torch.stack([torch.cat(parts[first : first + each], -1) for first in range(0, len(parts), each)])


def _neurons(model: MinMaxRNC_LM | MinMaxRNC) -> list[MinMaxNeuron]:
    backbone = model.backbone if isinstance(model, MinMaxRNC_LM) else model
    return [layer.neuron for layer in backbone.layers]  # type: ignore[misc]


def causes(cell: Cell, z: Tensor, x0: Tensor, before: Tensor) -> dict[str, Tensor]:
    """Which steps are set, reset, moved, held and dead, bool (B, T, D) or (B, T, U, N), as LatchReport defines them.

    z: (B, T, width), what drives the cell. x0: (size,). before: (B, T, size), the state that each step started from.
    """
    r, s = cell.as_minmax(z, x0)
    x, x0 = before.view(s.shape), x0.view(s.shape[2:])
    if r.dim() == s.dim():
        m = torch.minimum(r, x)
        is_set = s > m
        held = ~is_set & (x <= r)
        moved = torch.zeros_like(held)
        dead = (x == x0) & (s < x0) & (x0 < r)
    else:
        own = torch.eye(s.shape[-1], dtype=torch.bool, device=x.device)
        candidates = torch.minimum(r, x.unsqueeze(-2))  # (B, T, U, N, N), the last over k
        m = candidates.amax(-1)
        is_set = s > m
        passed = (candidates == m.unsqueeze(-1)) & (x.unsqueeze(-2) <= r)
        held = ~is_set & (passed & own).any(-1)
        moved = ~is_set & ~held & (passed & ~own).any(-1)
        smaller = (candidates < x0.unsqueeze(-1)) | own
        dead = (x == x0) & (s < x0) & smaller.all(-1) & (x0 < r.diagonal(dim1=-2, dim2=-1))
    return {"set": is_set, "reset": ~(is_set | held | moved), "moved": moved, "held": held, "dead": dead}


@torch.no_grad()
def _run(
    model: MinMaxRNC_LM | MinMaxRNC, inputs: Tensor, state: State | None, reset: Tensor | None, watch: WatchCell
) -> State:
    if not isinstance(model, (MinMaxRNC_LM, MinMaxRNC)):
        raise TypeError(f"model must be a MinMaxRNC_LM or a MinMaxRNC; got {type(model).__name__}")
    if inputs.dim() < 2 or not inputs.shape[0] or not inputs.shape[1]:
        raise ValueError(f"inputs must be (B, T, ...) with B and T at least 1; got {tuple(inputs.shape)}")
    with _watched(model, watch):
        after: State = model(inputs, state, reset=reset)[1]
    return after


@contextmanager
def _watched(model: MinMaxRNC_LM | MinMaxRNC, watch: WatchCell) -> Iterator[None]:
    """Within this context, `watch` is called with every recurrence that the model runs, cell by cell."""

    def tell(cell: Cell, given: tuple[Any, ...], x: Tensor) -> None:
        z, x0, state, reset = given
        first = x0.expand_as(x[:, 0]) if state is None else state
        before = torch.cat((first.unsqueeze(1), x), 1)[:, :-1]
        if reset is not None:
            before = torch.where(reset.unsqueeze(-1), x0, before)
        watch(cell, z, x0, before, x)

    hooks = [cell.register_forward_hook(tell) for neuron in _neurons(model) for cell in neuron.cells]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
