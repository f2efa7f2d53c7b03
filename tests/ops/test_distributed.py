"""Context parallelism with gloo on 2 and 3 processes, against the single-process scan."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import latchwork
from latchwork.ops import context_parallel
from latchwork.ops.cpu.kernel import MISSING

CUTS = {2: [(5, 8), (1, 12), (0, 13), (13, 0)], 3: [(4, 4, 5), (1, 11, 1), (6, 0, 7), (0, 0, 13)]}
BACKENDS = ["torch"] if MISSING else ["cpu", "torch"]


def draw(kind: str, degree: int, dtype: torch.dtype, steps: int) -> tuple[torch.Tensor, ...]:
    shape = (2, steps, 5) if degree == 1 else (2, steps, 3, degree)
    r, s, grad = torch.randn(shape if degree == 1 else (*shape, degree)), torch.randn(shape), torch.randn(shape)
    x0 = torch.randn(2, *shape[2:])
    if kind == "ties":
        r, s, x0 = r.round(), s.round(), x0.round()
    if kind == "held":  # nothing is set or reset: state and gradient pass through every rank
        r, s = r.abs() + 9, -s.abs() - 9
    if kind == "nan":
        r[1, steps // 2] = torch.nan
    return tuple(a.to(dtype) for a in (r, s, x0, grad))


def run_cases(rank: int, world: int, init: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    kinds = ("continuous", "ties", "held", "nan")
    cases = itertools.product(BACKENDS, kinds, (1, 3), dtypes, CUTS[world], (False, True))
    for seed, (backend, kind, degree, dtype, cuts, packed) in enumerate(cases):
        torch.manual_seed(seed)
        tensors = draw(kind, degree, dtype, sum(cuts))
        reset = torch.rand(2, sum(cuts)) < 0.2 if packed else None
        check(rank, cuts, tensors, reset, backend, f"{backend}, {kind}, degree {degree}, {dtype}, {cuts}, {packed}")
    dist.destroy_process_group()


def check(rank, cuts, tensors, reset, backend, name) -> None:
    r, s, x0, grad = tensors
    mine = slice(sum(cuts[:rank]), sum(cuts[: rank + 1]))
    state = None if reset is None else x0.flip(0)  # a state to go on from, besides the x0 of the resets
    whole = [a.clone().requires_grad_() for a in (r, s, x0)]
    x = latchwork.minmax_scan(*whole, reset=reset, state=state, backend=backend)
    x.backward(grad)
    part = [a.clone().requires_grad_() for a in (r[:, mine], s[:, mine], x0)]
    with context_parallel():
        resets = None if reset is None else reset[:, mine]
        y = latchwork.minmax_scan(*part, reset=resets, state=state, backend=backend)
    y.backward(grad[:, mine])
    total = part[2].grad.to(torch.float32)
    dist.all_reduce(total)
    same(y, x[:, mine], f"x: {name}")
    same(part[0].grad, whole[0].grad[:, mine], f"gradient of r: {name}")
    same(part[1].grad, whole[1].grad[:, mine], f"gradient of s: {name}")
    if reset is None:
        same(total.to(x0.dtype), whole[2].grad.to(torch.float32).to(x0.dtype), f"gradient of x0: {name}")
    else:
        tolerance = 1e-1 if x0.dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(
            total, whole[2].grad.to(torch.float32), rtol=tolerance, atol=tolerance, equal_nan=True, msg=name
        )


def same(a: torch.Tensor, b: torch.Tensor, name: str) -> None:
    assert torch.equal(a.isnan(), b.isnan()), name
    assert torch.equal(a.nan_to_num(), b.nan_to_num()), name


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_slices_on_ranks_give_the_values_and_gradients_of_one_process_bit_for_bit(world: int, tmp_path: Path) -> None:
    mp.spawn(run_cases, args=(world, f"file://{tmp_path / 'store'}"), nprocs=world)


def test_without_a_process_group_the_error_says_what_to_call() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"), context_parallel():
        pass
