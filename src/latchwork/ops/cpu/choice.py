"""A hard choice for each row of logits by the C++ kernel: csrc/choice.h.

torch's softmax of a row of five numbers costs many times what the numbers do. The kernel does softmax and argmax of
several rows at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from latchwork.ops.cpu import kernel
from latchwork.ops.cpu.abi import Choice
from latchwork.ops.cpu.kernel import attach, empty


def unfit(logits: Tensor) -> str | None:
    """Why the kernel cannot take logits, or None."""
    return kernel.unfit(logits, "logits")


def forward(logits: Tensor, own: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    """Weights and choice, as in `choose_rows`."""
    options = logits.shape[-1] + (own is not None)
    weights = empty(torch.Size((*logits.shape[:-1], options)), logits)
    choice = logits.new_empty(logits.shape[:-1], dtype=torch.int64)
    if weights.numel():
        _call("latchwork_choose", weights, temperature, logits=logits, own=own, choice=choice)
    return weights, choice


def backward(grad: Tensor, weights: Tensor, own: bool, temperature: float) -> tuple[Tensor, Tensor]:
    """The gradients of logits and of own, which is empty where there is none."""
    grad_logits = empty(torch.Size((*weights.shape[:-1], weights.shape[-1] - own)), weights)
    grad_own = weights.new_empty(weights.shape[:-1] if own else 0)
    if weights.numel():
        given = {"grad_logits": grad_logits, "grad_own": grad_own if own else None, "own": grad_own if own else None}
        _call("latchwork_choose_back", weights, temperature, grad=grad, **given)
    return grad_logits, grad_own


def _call(name: str, weights: Tensor, temperature: float, **tensors: Tensor | None) -> None:
    """Run the kernel on tensors (..., N, K) and (..., N), whose units and places are made the rows of one token."""
    leading = weights.shape[:-1]
    tokens, rows = leading[:-2].numel(), leading[-2:].numel()
    flat = {}  # kept until the kernel has run
    for each, tensor in {"weights": weights, **tensors}.items():
        shape = (tokens, rows, *tensor.shape[len(leading) :]) if tensor is not None else ()
        view = None if tensor is None else tensor.reshape(shape)
        flat[each] = view if view is None or view[0].is_contiguous() else view.contiguous()
    problem = Choice(
        dtype=kernel.DTYPES[weights.dtype],
        tokens=tokens,
        rows=rows,
        options=weights.shape[-1],
        threads=torch.get_num_threads(),
        temperature=temperature,
    )
    attach(problem, time=False, **flat)
    kernel.call(name, problem)
