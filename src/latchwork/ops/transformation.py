"""Recurrences whose every step sends whole levels: level k of a unit goes to place choice[k], and the largest stays.

It is the MinMax recurrence with r[i, k] = +inf where choice[k] is i and 0 elsewhere, and s = 0 (`as_minmax`), over
levels that are at least 0: any transformation of the places, also one that sends two to the same. The gradient is a
**surrogate**, straight through the choice as in ops/selection.py: that of x_t[i] = sum_k weights[k, i] x_{t-1}[k],
taken where weights is the choice itself. So the gradient of weights[k, i] is x_{t-1}[k] g[i], and to x_{t-1}[k] goes
back what comes to the place it went to, also if it was not the largest there. For the state this is exact where at most
one of those that meet is not 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops import moves
from latchwork.ops.algebra import Step
from latchwork.ops.moves_torch import check_choice
from latchwork.ops.parallel import broadcast_reset
from latchwork.ops.scan import expand
from latchwork.ops.transforms import hides_numbers


def transformation_scan(
    weights: Tensor,
    choice: Tensor,
    x0: Tensor,
    *,
    reset: Tensor | None = None,
    state: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Run x_t[i] = max(0, max over k with choice_t[k] = i of x_{t-1}[k]) and return every state, (B, T, U, N).

    choice: (B, T, U, N) int64, at least 0 and less than N: where each level goes. A place to which none comes is 0.
    weights: (B, T, U, N, N), how much each choice was worth, as a softmax gives it; it changes no value and is there to
    be given the surrogate gradient. x0: (B, U, N) or (U, N), at least 0.
    reset, state, backend: as in `minmax_scan`, state at least 0.
    Every backend returns the same bits. A zero is written as +0. A NaN goes where it is sent and stays there: here it
    does not spread. Gradients are summed in float32 at least.

    >>> choice = torch.tensor([[[[1, 2, 0]], [[0, 0, 2]]]])  # all move on by one; the first two come together
    >>> weights = torch.nn.functional.one_hot(choice, 3).float()
    >>> transformation_scan(weights, choice, torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[[[3.0, 1.0, 2.0]], [[3.0, 0.0, 2.0]]]]
    """
    moves.check_arguments(weights, choice, x0, None, reset, state)
    _check_levels(x0, state)
    x0 = expand(x0.to(weights.dtype), choice.shape[:1] + choice.shape[2:])
    start = x0 if state is None else expand(state.to(weights.dtype), x0.shape)
    name = moves.choose(backend, weights, choice, start, reset, x0)
    if name == "reference":
        return reference_transformation(weights, choice, start, reset, x0)
    return moves.run(weights, choice, start, None, reset, x0, sends=True, backend=name)


def reference_transformation(
    weights: Tensor, choice: Tensor, state: Tensor, reset: Tensor | None, x0: Tensor
) -> Tensor:
    """The definition, for finite levels: a loop over time, differentiated by autograd."""
    check_choice(choice, weights.shape[-1])
    places = torch.arange(weights.shape[-1], device=choice.device)
    sent = choice.unsqueeze(-1) == places  # (B, T, U, N, N): from k to i
    straight = sent.to(weights.dtype) + (weights - weights.detach())
    x, states = state, []
    for t in range(choice.shape[1]):
        if reset is not None:
            x = torch.where(broadcast_reset(reset[:, t], x), x0, x)
        linear = (straight[:, t] * x.unsqueeze(-1)).sum(-2)
        largest = torch.where(sent[:, t], x.unsqueeze(-1), 0.0).amax(-2)
        x = largest.detach() + (linear - linear.detach())  # the value of the one, the gradient of the other
        states.append(x)
    return torch.stack(states, 1) + 0.0 if states else weights.sum(-1)


def as_minmax(choice: Tensor, high: Tensor | float, dtype: torch.dtype) -> Step:
    """r (..., U, N, N) and s (..., U, N) of the MinMax step that does the same on states from 0 to high.

    choice: (..., U, N). high: (U,) or a number; infinity serves any state.
    """
    units, degree = choice.shape[-2:]
    high = torch.as_tensor(high, dtype=dtype, device=choice.device).expand(units)[:, None, None]
    places = torch.arange(degree, device=choice.device).unsqueeze(-1)
    r = torch.where(choice.unsqueeze(-2) == places, high, torch.zeros_like(high))
    return r, r.new_zeros(choice.shape)


def _check_levels(x0: Tensor, state: Tensor | None) -> None:
    if x0.device.type != "cpu" or hides_numbers():
        return  # on a GPU, to look at a number is to wait for it
    for name, value in {"x0": x0, "state": x0 if state is None else state}.items():
        if value.numel() and (least := value.detach().amin()) < 0:
            raise ValueError(f"{name} must be at least 0; got {least.item()}")
