"""Sequences packed into one row do not see each other: neither values nor gradients cross a reset."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import (
    EXACT_VARIANTS,
    VARIANTS,
    assert_same_gradients,
    assert_same_run,
    gradients,
    make_exact_model,
    make_model,
    make_state,
    make_tokens,
    pairs_were_used,
    watched_pairs,
    without_pairs,
)

from latchwork import State

each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_exact_variant = pytest.mark.parametrize("variant", EXACT_VARIANTS)


def pack(lengths, vocab_size=7):
    """Sequences, the same in one row, and where each begins."""
    parts = [make_tokens(1, length, vocab_size) for length in lengths]
    reset = torch.zeros(1, sum(lengths), dtype=torch.bool)
    reset[0, [sum(lengths[:number]) for number in range(len(lengths))]] = True
    return parts, torch.cat(parts, 1), reset


@each_variant
def test_packed_sequences_have_the_gradients_of_the_separate_ones(variant):
    model = make_model(**VARIANTS[variant])
    parts, tokens, reset = pack([5, 1, 9, 2])
    packed = gradients(model, model(tokens, reset=reset)[0].square().sum())
    separate = gradients(model, sum(model(part)[0].square().sum() for part in parts))
    assert_same_gradients(packed, separate, 1e-9)


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    variant=st.sampled_from(sorted(EXACT_VARIANTS)),
    carried=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_packing_equals_the_separate_sequences(lengths, variant, carried, seed):
    torch.manual_seed(seed)
    model = make_exact_model(**EXACT_VARIANTS[variant])
    parts, tokens, reset = pack(lengths)
    state = State(*(each.round() for each in make_state(model, 1))) if carried else None
    logits, after = model(tokens, state, reset=reset)
    alone = [model(part) for part in parts]
    assert_same_run((logits, after), (torch.cat([each for each, _ in alone], 1), alone[-1][1]))


@each_exact_variant
def test_a_reset_at_the_first_step_forgets_the_state_given(variant):
    model = make_exact_model(**EXACT_VARIANTS[variant])
    for T in (1, 2, 20):
        tokens, state = make_tokens(2, T), make_state(model, 2)
        state.conv[:, 0], state.x[:, 0] = torch.nan, torch.inf
        reset = torch.zeros(2, T, dtype=torch.bool)
        reset[0, 0] = True
        logits, after = model(tokens, state, reset=reset)
        fresh = model(tokens[:1])
        assert_same_run((logits[:1], after.select([0])), fresh)
        kept = model(tokens[1:], state.select([1]))
        assert_same_run((logits[1:], after.select([1])), kept, 1e-5)


POISONS = [torch.nan, torch.inf, -torch.inf, 1e30]


@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize("pairs", [False, True], ids=["plain", "pairs"])
@pytest.mark.parametrize("variant", ["default", "degree 2"])
def test_poisoned_tokens_before_a_reset_do_not_reach_the_logits_after_it(variant, pairs, poison):
    model = make_exact_model(4, **EXACT_VARIANTS[variant])
    tokens = torch.cat((torch.tensor([[3, 0, 3, 3, 1, 2, 3]]), make_tokens(1, 60, 3)), 1)
    reset = torch.arange(67).unsqueeze(0) == 7
    expected = model(tokens[:, 7:])
    with torch.no_grad():
        model.embedding.weight[3] = poison
        if model.head.weight is model.embedding.weight:
            model.head.weight = torch.nn.Parameter(torch.nan_to_num(model.head.weight, 0, 0, 0).clamp(-4, 4))
    with watched_pairs() as given_pairs:
        if pairs:
            logits, state = model(tokens, reset=reset)
            assert pairs_were_used(given_pairs)
        else:
            with without_pairs():
                logits, state = model(tokens, reset=reset)
    assert_same_run((logits[:, 7:, :3], state), (expected[0][..., :3], expected[1]))
    assert not logits[:, :4].isfinite().all() or poison == 1e30


@each_variant
def test_no_gradient_crosses_a_reset(variant):
    for dtype in (torch.float32, torch.float64):
        model = make_model(**VARIANTS[variant], dtype=dtype)
        u = torch.randn(2, 24, 6, dtype=dtype, requires_grad=True)
        state = State(*(each.requires_grad_() for each in make_state(model, 2)))
        reset = (torch.arange(24) == 10).expand(2, 24)
        y, after = model.backbone(u, state, reset=reset)
        loss = y[:, 10:].square().sum() + after.x.sum() + after.conv.sum()
        found, *of_state = torch.autograd.grad(loss, [u, *state], allow_unused=True, materialize_grads=True)
        assert not found[:, :10].any()
        assert found[:, 10:].any()
        assert not any(each.any() for each in of_state)


@pytest.mark.parametrize("T", [1, 24])
def test_no_gradient_reaches_the_state_of_a_row_that_begins_anew(T):
    model = make_model()
    state = State(*(each.requires_grad_() for each in make_state(model, 2)))
    reset = torch.zeros(2, T, dtype=torch.bool)
    reset[0, 0] = True
    logits, _ = model(make_tokens(2, T), state, reset=reset)
    for grad in torch.autograd.grad(logits.square().sum(), state):
        assert not grad[:, 0].any()
        assert grad[:, 1].any() or T == 1


@pytest.mark.parametrize("vocab_size", [8, 40])
def test_no_gradient_reaches_the_embeddings_of_tokens_before_a_reset(vocab_size):
    model = make_model(vocab_size, tie_weights=False)
    tokens = torch.cat((make_tokens(2, 100, 4), 4 + make_tokens(2, 500, 4)), 1)
    reset = (torch.arange(600) == 100).expand(2, 600)
    with watched_pairs() as given_pairs:
        logits, _ = model(tokens, reset=reset)
    assert pairs_were_used(given_pairs)
    grad = gradients(model, logits[:, 100:].square().sum())["embedding.weight"]
    assert not grad[:4].any()
    assert grad[4:8].any()


def test_without_a_reset_there_is_a_leak_to_find():
    model = make_exact_model()
    one, other = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 6, 3, 4]])
    assert not torch.equal(model(one)[0][:, 2:], model(other)[0][:, 2:])
    reset = torch.tensor([[False, False, True, False]])
    assert torch.equal(model(one, reset=reset)[0][:, 2:], model(other, reset=reset)[0][:, 2:])
