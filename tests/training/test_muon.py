"""Muon: its matrices step orthogonally, as torch's own do."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork.training.muon import Muon, by_product, by_rounds, orthogonalise


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32))
def test_it_keeps_the_singular_vectors_and_brings_the_values_near_one(rows, columns, scale, seed):
    draw = torch.Generator().manual_seed(seed)
    u, _, v = torch.linalg.svd(torch.randn(rows, columns, generator=draw), full_matrices=False)
    values = 0.1 + 0.9 * torch.rand(min(rows, columns), generator=draw)
    found = orthogonalise(scale * u @ values.diag() @ v)
    inside = u.T @ found @ v.T
    assert ((inside.diagonal() > 0.6) & (inside.diagonal() < 1.3)).all()
    torch.testing.assert_close(inside, inside.diagonal().diag(), atol=1e-3, rtol=0)
    torch.testing.assert_close(u @ inside @ v, found, atol=1e-3, rtol=0)


@given(rows=st.integers(1, 30), times=st.integers(2, 5), seed=st.integers(0, 2**32))
def test_the_factors_multiplied_first_give_the_same(rows, times, seed):
    x = torch.randn(rows, times * rows, generator=torch.Generator().manual_seed(seed))
    x = x / x.norm()
    torch.testing.assert_close(by_product(x), by_rounds(x), atol=1e-3, rtol=0)


def test_of_nothing_it_makes_nothing():
    assert torch.equal(orthogonalise(torch.zeros(3, 5)), torch.zeros(3, 5))


def test_it_steps_as_torchs_own_muon_but_for_bfloat16():
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(24, 40)) for _ in range(2))
    one = Muon([{"params": [ours], "momentum": 0.95, "rate": 1.0, "decays": True}], lr=0.02, weight_decay=0.1)
    other = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        ours.grad = torch.randn(24, 40)
        theirs.grad = ours.grad.clone()
        one.step()
        other.step()
    moved = (1 - theirs).norm()
    assert (ours - theirs).norm() < 0.02 * moved
