"""What `selection_scan` and `transformation_scan` share: check the arguments, choose a backend, define the gradient.

A step moves whole levels of a unit. Taking: place i takes level choice[i], or where choice[i] is N a level s[i] of its
own. Sending: level k goes to place choice[k]. The two are each other's transposes, so that the gradient of the one
moves as the other does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from latchwork.ops import dispatch, moves_cpu, moves_gpu, moves_torch, transforms
from latchwork.ops.moves_torch import Gradients
from latchwork.ops.scan import DTYPES, check_dense


@dataclass(frozen=True)
class Backend:
    """One way to run the moves; shapes as in `moves_torch`. `unfit` says why it cannot take weights, or None."""

    forward: Callable[..., Tensor]
    backward: Callable[..., Gradients]
    unfit: Callable[[Tensor], str | None]


BACKENDS = {  # in order of preference; the last takes anything
    "triton": Backend(moves_gpu.forward, moves_gpu.backward, moves_gpu.unfit),
    "cpu": Backend(moves_cpu.forward, moves_cpu.backward, moves_cpu.unfit),
    "torch": Backend(moves_torch.forward, moves_torch.backward, lambda weights: None),
}


def run(
    weights: Tensor,
    choice: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor,
    *,
    sends: bool,
    backend: str,
) -> Tensor:
    """Every state (B, T, U, N); state, s and x0 are (B, U, N), of the dtype of weights. backend: see `choose`."""
    start = None if reset is None else x0
    x: Tensor = torch.ops.latchwork.move_scan(weights, choice, state, s, reset, start, sends, backend)
    return x


def choose(name: str, weights: Tensor, *others: Tensor | None) -> str:
    """The name of the backend that will run: `name` itself, or for "auto" the first that can take all these."""
    name, plain = dispatch.asked_for(name), transforms.unfit(weights, *others)
    if name == "reference" or (name == "auto" and plain):
        return "reference"
    if name == "auto":
        return next(each for each, backend in BACKENDS.items() if backend.unfit(weights) is None)
    if name not in BACKENDS:
        raise ValueError(f"backend {name!r} is unknown; there are auto, reference, {', '.join(BACKENDS)}")
    if reason := plain or BACKENDS[name].unfit(weights):
        raise ValueError(f"backend {name!r} cannot run: {reason}")
    return name


@torch.library.custom_op("latchwork::move_scan", mutates_args=())
def _scan(
    weights: Tensor,
    choice: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
    backend: str,
) -> Tensor:
    return BACKENDS[backend].forward(choice, state, s, reset, x0, sends)


@_scan.register_fake
def _(
    weights: Tensor,
    choice: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
    backend: str,
) -> Tensor:
    return weights.new_empty(choice.shape)


@torch.library.custom_op("latchwork::move_scan_backward", mutates_args=())
def _backward(
    grad: Tensor,
    choice: Tensor,
    x: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of weights, state, s and x0; the last two are empty where there is no s, or no reset."""
    gradients = BACKENDS[backend].backward(grad, choice, x, state, s, reset, x0, sends)
    # One layout, which the fake promises too: sums over what leaves here then have one order.
    of_weights, of_state, of_s, of_x0 = (state.new_empty(0) if a is None else a.contiguous() for a in gradients)
    return of_weights, of_state, of_s, of_x0


@_backward.register_fake
def _(
    grad: Tensor,
    choice: Tensor,
    x: Tensor,
    state: Tensor,
    s: Tensor | None,
    reset: Tensor | None,
    x0: Tensor | None,
    sends: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_weights = grad.new_empty(*choice.shape, choice.shape[-1] + (s is not None))
    of_s, of_x0 = (state.new_empty(0 if a is None else state.shape) for a in (s, reset))
    return grad_weights, state.new_empty(state.shape), of_s, of_x0


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: Tensor) -> None:
    _, choice, state, s, reset, x0, ctx.sends, ctx.backend = inputs  # type: ignore[attr-defined]
    ctx.save_for_backward(choice, output, state, s, reset, x0)  # type: ignore[arg-type]


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    if transforms.has_tangent(grad):
        _no_second_gradient(ctx)
    choice, x, state, s, reset, x0 = ctx.saved_tensors  # type: ignore[attr-defined]
    backward = torch.ops.latchwork.move_scan_backward
    gradients = backward(grad, choice, x, state, s, reset, x0, ctx.sends, ctx.backend)  # type: ignore[attr-defined]
    grad_weights, grad_state, grad_s, grad_x0 = gradients
    of_s, of_x0 = None if s is None else grad_s, None if x0 is None else grad_x0
    return grad_weights, None, grad_state, of_s, None, of_x0, None, None


def _no_second_gradient(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> None:
    raise NotImplementedError("moves of levels have no second derivative: their gradient is a surrogate")


_scan.register_autograd(_gradient, setup_context=_save)
_backward.register_autograd(_no_second_gradient)


def check_arguments(
    weights: Tensor, choice: Tensor, x0: Tensor, s: Tensor | None, reset: Tensor | None, state: Tensor | None
) -> None:
    """Raise an error that names the argument that is wrong, what it must be and what it was."""
    check_dense(weights=weights, choice=choice, x0=x0, s=s, reset=reset, state=state)
    if torch.compiler.is_compiling():
        return  # the sizes are open, and may not be compared
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
    if weights.dtype not in DTYPES:
        raise TypeError(f"weights must be float32, float64, bfloat16 or float16; got {weights.dtype}")
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
