"""Hard choices and their soft weights equal their definitions."""

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork.modules.choice import all_permutations, choose_permutation, sinkhorn
from latchwork.ops.choice import choose_rows


@given(shape=st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 6)), seed=st.integers(0, 2**32 - 1))
def test_a_row_chooses_its_largest_logit_and_weighs_all_by_softmax(shape, seed):
    torch.manual_seed(seed)
    logits = torch.randn(shape, dtype=torch.float64)
    weights, choice = choose_rows(logits)
    for row in range(shape[0]):
        for i, line in enumerate(logits[row]):
            assert line[choice[row, i]] == line.max()
            torch.testing.assert_close(weights[row, i], line.exp() / line.exp().sum())


@given(degree=st.integers(1, 5), batch=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_the_permutation_has_the_largest_sum_of_all(degree, batch, seed):
    torch.manual_seed(seed)
    logits = torch.randn(batch, degree, degree, dtype=torch.float64)
    _, choice = choose_permutation(logits)
    assert choice.shape == (batch, degree)
    for matrix, chosen in zip(logits, choice.tolist(), strict=True):
        best = max(permutations(range(degree)), key=lambda p: sum(matrix[i, k].item() for i, k in enumerate(p)))
        assert tuple(chosen) == best


def test_sinkhorn_keeps_a_mix_of_permutations_and_makes_others_into_one():
    mix = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(mix.log()), mix)
    found = sinkhorn(torch.randn(4, 3, 3, dtype=torch.float64))
    for dim in (-1, -2):
        torch.testing.assert_close(found.sum(dim), torch.ones(4, 3, dtype=torch.float64), atol=1e-2, rtol=0)


def test_sinkhorn_is_not_moved_by_what_is_added_to_a_whole_row():
    logits = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(logits + 1000 * torch.arange(3.0)[:, None]), sinkhorn(logits))


@pytest.mark.parametrize("choose", [choose_rows, choose_permutation])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_have_the_dtype_of_the_logits_and_a_gradient(choose, dtype):
    logits = torch.randn(2, 3, 3, dtype=dtype, requires_grad=True)
    weights, choice = choose(logits)
    assert (weights.dtype, choice.dtype) == (dtype, torch.int64)
    assert not choice.requires_grad
    weights[..., 0, 0].sum().backward()
    assert logits.grad.abs().sum() > 0


def test_all_permutations_are_in_order():
    assert all_permutations(3).tolist() == [list(p) for p in permutations(range(3))]
