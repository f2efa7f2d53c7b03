"""selection_scan and transformation_scan: recurrences whose every step moves whole levels of a unit.

**Selection** takes: place i of a unit takes x[choice[i]], or where choice[i] is N a level s[i] of its own. It is the
MinMax recurrence with r[i, k] = +inf at the chosen k and -inf elsewhere (`selection_as_minmax`), and so a gather.
**Transformation** sends: level k goes to place choice[k], and where several meet the largest stays. It is the MinMax
recurrence with r[i, k] = +inf where choice[k] is i and 0 elsewhere, and s = 0, over levels that are at least 0
(`transformation_as_minmax`): any map of the places into themselves.

The MinMax gradient says nothing at such a step about what else to choose: it is zero but for ties. The gradient here is
a **surrogate**, straight through the choice. For selection it is that of x_t[i] = sum_k weights[i, k] x_{t-1}[k], taken
where weights is the choice itself. So the gradient of weights[i, k] is g[i] x_{t-1}[k], and g goes back along the
choice alone. For transformation it is that of x_t[i] = sum_k weights[k, i] x_{t-1}[k]: the gradient of weights[k, i] is
x_{t-1}[k] g[i], and x_{t-1}[k] gets back what comes to the place it went to, also if it was not the largest there. For
the state this is exact where at most one of those that meet is not 0. The two are each other's transposes, so that the
gradient of the one moves as the other does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latchwork.ops import dispatch, distributed
from latchwork.ops.algebra import Step
from latchwork.ops.arguments import DTYPES, autocasts, check_dense, expand
from latchwork.ops.reference import reference_selection, reference_transformation
from latchwork.ops.transforms import hides_numbers


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
    return _scan(weights, choice, x0, s, reset, state, False, backend)


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
    return _scan(weights, choice, x0, None, reset, state, True, backend)


def _scan(
    weights: Tensor,
    choice: Tensor,
    x0: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    state: Tensor | None,
    sends: bool,
    backend: str,
) -> Tensor:
    x0, s, state = _check_arguments(weights, choice, x0, s, reset, state)
    if sends:
        _check_levels(x0, state)
    x0 = expand(x0, choice.shape[:1] + choice.shape[2:])
    start = x0 if state is None else expand(state, x0.shape)
    s = None if s is None else expand(s, x0.shape)
    name = dispatch.choose("moves", backend, weights, choice, start, s, reset, x0)
    if name == "reference" and sends:
        return reference_transformation(weights, choice, start, reset, x0)
    if name == "reference":
        return reference_selection(weights, choice, start, s, reset, x0)
    start_again = None if reset is None else x0
    x: Tensor = torch.ops.latchwork.move_scan(weights, choice, start, s, reset, start_again, sends, name)
    return x


def selection_as_minmax(
    choice: Tensor, s: Tensor | None, low: Tensor | float, high: Tensor | float, dtype: torch.dtype
) -> Step:
    """r (..., U, N, N) and s (..., U, N) of the MinMax step that equals a selection, for states from low to high.

    choice: (..., U, N). low, high: (U,) or numbers; infinities are right for any state.
    """
    units, degree = choice.shape[-2:]
    low, high = (torch.as_tensor(each, dtype=dtype, device=choice.device) for each in (low, high))
    low, high = (each.expand(units).unsqueeze(-1) for each in (low, high))
    columns = torch.arange(degree, device=choice.device)
    r = torch.where(choice.unsqueeze(-1) == columns, high.unsqueeze(-1), low.unsqueeze(-1))
    written = low.expand(choice.shape) if s is None else torch.where(choice == degree, s.to(dtype), low)
    return r, written


def transformation_as_minmax(choice: Tensor, high: Tensor | float, dtype: torch.dtype) -> Step:
    """r (..., U, N, N) and s (..., U, N) of the MinMax step that equals a transformation, for states from 0 to high.

    choice: (..., U, N). high: (U,) or a number; infinity is right for any state.
    """
    units, degree = choice.shape[-2:]
    high = torch.as_tensor(high, dtype=dtype, device=choice.device).expand(units)[:, None, None]
    places = torch.arange(degree, device=choice.device).unsqueeze(-1)
    r = torch.where(choice.unsqueeze(-2) == places, high, torch.zeros_like(high))
    return r, r.new_zeros(choice.shape)


def _check_arguments(
    weights: Tensor, choice: Tensor, x0: Tensor, s: Tensor | None, reset: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """x0, s and state. Raises an error that names the argument that is wrong, what it must be and what it was.

    Under autocast they take the type of weights.
    """
    distributed.refuse("a scan that moves whole levels")
    check_dense(weights=weights, choice=choice, x0=x0, s=s, reset=reset, state=state)
    if autocasts(weights):
        x0, s, state = (None if each is None else each.to(weights.dtype) for each in (x0, s, state))  # type: ignore[assignment]
    if weights.dtype not in DTYPES:
        raise TypeError(f"weights must be float32, float64, bfloat16 or float16; got {weights.dtype}")
    for name, value in {"x0": x0, "s": s, "state": state}.items():
        if value is not None and value.dtype != weights.dtype:
            raise TypeError(f"{name} must have the dtype of weights, {weights.dtype}; got {value.dtype}")
    if torch.compiler.is_compiling():
        return x0, s, state  # the sizes are open, and may not be compared
    if choice.dim() != 4 or choice.shape[-1] == 0:
        raise ValueError(f"choice must be (B, T, U, N) with N >= 1; got {tuple(choice.shape)}")
    if choice.dtype != torch.int64:
        raise TypeError(f"choice must be int64; got {choice.dtype}")
    units = tuple(choice.shape[2:])
    if s is not None and s.shape != units:
        raise ValueError(f"s must be (U, N) = {units}, or None; got {tuple(s.shape)}")
    options = units[1] + (s is not None)
    if weights.shape != (*choice.shape, options):
        raise ValueError(
            f"weights must be (B, T, U, N, K) = {(*choice.shape, options)}, K being N, or N + 1 with s; "
            f"got {tuple(weights.shape)}"
        )
    whole = (choice.shape[0], *units)
    for name, value in {"x0": x0, "state": x0 if state is None else state}.items():
        if tuple(value.shape) not in (whole, units):
            raise ValueError(f"{name} must be {whole} or {units}; got {tuple(value.shape)}")
    if reset is not None and (reset.dtype != torch.bool or reset.shape != choice.shape[:2]):
        raise ValueError(
            f"reset must be bool (B, T) = {tuple(choice.shape[:2])}; got {reset.dtype} {tuple(reset.shape)}"
        )
    for name, other in {"choice": choice, "x0": x0, "state": state, "s": s, "reset": reset}.items():
        if other is not None and other.device != weights.device:
            raise ValueError(f"{name} must be on the device of weights, {weights.device}; got {other.device}")
    return x0, s, state


def _check_levels(x0: Tensor, state: Tensor | None) -> None:
    if x0.device.type != "cpu" or hides_numbers():
        return  # on a GPU, reading a number means waiting for it
    for name, value in {"x0": x0, "state": x0 if state is None else state}.items():
        if value.numel() and (least := value.detach().amin()) < 0:
            raise ValueError(f"{name} must be at least 0; got {least.item()}")


def _run(
    weights: Tensor,
    choice: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
    backend: str,
) -> Tensor:
    x: Tensor = dispatch.BACKENDS["moves"][backend].forward(choice, state, s, reset, x0, sends)
    return x


def _fake(weights: Tensor, choice: Tensor, *_: Any) -> Tensor:
    return weights.new_empty(choice.shape)


def _run_backward(
    grad: Tensor,
    choice: Tensor,
    x: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
    backend: str,
) -> tuple[Tensor, ...]:
    """The gradients of weights, state, s and x0; the last two are empty where there is no s, or no reset."""
    gradients = dispatch.BACKENDS["moves"][backend].backward(grad, choice, x, state, s, reset, x0, sends)
    # One layout, which the fake promises too: sums over what leaves here then have one order.
    return tuple(state.new_empty(0) if each is None else each.contiguous() for each in gradients)


def _backward_fake(
    grad: Tensor, choice: Tensor, x: Tensor, state: Tensor, s: Tensor | None, reset: Tensor | None, *_: Any
) -> tuple[Tensor, ...]:
    grad_weights = grad.new_empty(*choice.shape, choice.shape[-1] + (s is not None))
    of_s, of_x0 = (state.new_empty(0 if each is None else state.shape) for each in (s, reset))
    return grad_weights, state.new_empty(state.shape), of_s, of_x0


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, choice, state, s, reset, x0, ctx.sends, ctx.backend = inputs
    ctx.save_for_backward(choice, output, state, s, reset, x0)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    dispatch.refuse_tangent(grad)
    choice, x, state, s, reset, x0 = ctx.saved_tensors
    backward = torch.ops.latchwork.move_scan_backward
    found = backward(grad, choice, x, state, s, reset, x0, ctx.sends, ctx.backend)
    grad_weights, grad_state, grad_s, grad_x0 = found
    of_s, of_x0 = None if s is None else grad_s, None if x0 is None else grad_x0
    return grad_weights, None, grad_state, of_s, None, of_x0, None, None


dispatch.register(
    "move_scan(Tensor weights, Tensor choice, Tensor state, Tensor? s, Tensor? reset, Tensor? x0, bool sends, "
    "str backend) -> Tensor",
    _run,
    _fake,
    _save,
    _gradient,
)
dispatch.register(
    "move_scan_backward(Tensor grad, Tensor choice, Tensor x, Tensor state, Tensor? s, Tensor? reset, Tensor? x0, "
    "bool sends, str backend) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_backward,
    _backward_fake,
)
