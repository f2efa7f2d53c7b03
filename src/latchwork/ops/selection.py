"""Recurrences whose every step moves whole levels: row i of a unit takes x[k], or a level s[i] of its own.

It is the MinMax recurrence with r[i, k] = +inf at the chosen k and -inf elsewhere (`as_minmax`), and so a gather. The
MinMax gradient says nothing at such a step about what else to choose: it is zero but for ties. The gradient here is a
**surrogate** instead, straight through the choice: that of x_t[i] = sum_k weights[i, k] x_{t-1}[k], taken where weights
is the choice itself. So the gradient of weights[i, k] is g[i] x_{t-1}[k], and g goes back along the choice alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops import moves
from latchwork.ops.algebra import Step
from latchwork.ops.moves_torch import check_choice
from latchwork.ops.parallel import broadcast_reset
from latchwork.ops.scan import expand


def selection_scan(
    weights: Tensor,
    choice: Tensor,
    x0: Tensor,
    *,
    s: Tensor | None = None,
    reset: Tensor | None = None,
    state: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Run x_t[i] = x_{t-1}[choice_t[i]] from x0 and return every state, (B, T, U, N).

    choice: (B, T, U, N) int64, at least 0 and less than K. weights: (B, T, U, N, K), how much each choice was worth,
    as a softmax gives it; it changes no value and is there to be given the surrogate gradient. x0: (B, U, N) or (U, N).
    K is N; or with s, (U, N), it is N + 1, and where choice is N row i takes s[i].
    reset, state, backend: as in `minmax_scan`.
    Every backend returns the same bits. A zero is written as +0. A NaN moves as any level does: here it does not
    spread. Gradients are summed in float32 at least, and in the backends "torch" and "cpu" in one order.

    >>> choice = torch.tensor([1, 0, 2]).expand(1, 3, 1, 3)  # the first two change places
    >>> selection_scan(torch.nn.functional.one_hot(choice, 3).float(), choice, torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[[[2.0, 1.0, 3.0]], [[1.0, 2.0, 3.0]], [[2.0, 1.0, 3.0]]]]
    """
    moves.check_arguments(weights, choice, x0, s, reset, state)
    x0 = expand(x0.to(weights.dtype), choice.shape[:1] + choice.shape[2:])
    start = x0 if state is None else expand(state.to(weights.dtype), x0.shape)
    s = None if s is None else expand(s.to(weights.dtype), x0.shape)
    name = moves.choose(backend, weights, choice, start, s, reset, x0)
    if name == "reference":
        return reference_selection(weights, choice, start, s, reset, x0)
    return moves.run(weights, choice, start, s, reset, x0, sends=False, backend=name)


def reference_selection(
    weights: Tensor, choice: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, x0: Tensor
) -> Tensor:
    """The definition, for finite levels: a loop over time, differentiated by autograd. s: (B, U, N)."""
    check_choice(choice, weights.shape[-1])
    options = torch.arange(weights.shape[-1], device=choice.device)
    chosen = (choice.unsqueeze(-1) == options).to(weights.dtype) + (weights - weights.detach())
    x, states = state, []
    for t in range(choice.shape[1]):
        if reset is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        options = x.unsqueeze(-2).expand(*x.shape, x.shape[-1])  # (B, U, N, N): every row sees the whole state
        if s is not None:
            options = torch.cat([options, s.unsqueeze(-1)], -1)
        x = (chosen[:, t] * options).sum(-1)
        states.append(x)
    return torch.stack(states, 1) + 0.0 if states else weights.sum(-1)


def as_minmax(choice: Tensor, s: Tensor | None, low: Tensor | float, high: Tensor | float, dtype: torch.dtype) -> Step:
    """r (..., U, N, N) and s (..., U, N) of the MinMax step that does the same on states from low to high.

    choice: (..., U, N). low, high: (U,) or numbers; infinities serve any state.
    """
    units, degree = choice.shape[-2:]
    low, high = (torch.as_tensor(each, dtype=dtype, device=choice.device) for each in (low, high))
    low, high = (each.expand(units).unsqueeze(-1) for each in (low, high))
    columns = torch.arange(degree, device=choice.device)
    r = torch.where(choice.unsqueeze(-1) == columns, high.unsqueeze(-1), low.unsqueeze(-1))
    written = low.expand(choice.shape) if s is None else torch.where(choice == degree, s.to(dtype), low)
    return r, written
