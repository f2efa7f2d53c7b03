"""The first layer computed once for each pair of tokens gives what it gives at every step, in values and gradients."""

import itertools
from unittest import mock

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

from latchwork import State, use_backend
from latchwork.models import token_pairs
from latchwork.modules import fast_layer
from reset_cases import RESETS, make_reset

# vocabulary, tokens that come, batch, length: so small that all pairs are taken, or so large that they are counted.
SMALL, TEXT = (3, 3, 2, 40), (50, 8, 2, 600)
SIZES = [SMALL, TEXT]
both_sizes = pytest.mark.parametrize("size", SIZES, ids=["all pairs", "counted pairs"])


def make_text(size):
    vocab_size, come, B, T = size
    return torch.randperm(vocab_size)[:come][make_tokens(B, T, come)]


def run(model, tokens, state=None, reset=None, *, pairs):
    """(logits, state) with the pairs, which must have been used, or without."""
    if not pairs:
        with without_pairs():
            return model(tokens, state, reset=reset)
    with watched_pairs() as seen:
        result = model(tokens, state, reset=reset)
    assert pairs_were_used(seen)
    return result


@pytest.mark.parametrize("variant", EXACT_VARIANTS)
def test_pairs_change_no_bit_where_nothing_rounds(variant):
    for size, carried, kind in itertools.product(SIZES, (False, True), ("never", "random", "first")):
        model, tokens = make_exact_model(size[0], **EXACT_VARIANTS[variant]), make_text(size)
        state = State(*(each.round() for each in make_state(model, size[2]))) if carried else None
        reset = make_reset(kind, *tokens.shape)
        assert_same_run(run(model, tokens, state, reset, pairs=True), run(model, tokens, state, reset, pairs=False))


@pytest.mark.parametrize("variant", VARIANTS)
def test_pairs_change_no_logit_and_no_gradient(variant):
    ways = [(torch.float64, False), (torch.float64, True), (torch.float32, True)]
    for size, (dtype, carried) in itertools.product(SIZES, ways):
        if dtype == torch.float32 and "levels" in variant:
            continue  # where a rounding may tip a state by a whole level
        model, tokens = make_model(size[0], **VARIANTS[variant], dtype=dtype), make_text(size)
        state = State(*(each.requires_grad_() for each in make_state(model, size[2]))) if carried else None
        weights, reset = torch.randn(*tokens.shape, size[0], dtype=dtype), make_reset("random", *tokens.shape)
        if carried:
            reset[0, 0], reset[1, 0] = True, False
        found = []
        for pairs in (True, False):
            logits, after = run(model, tokens, state, reset, pairs=pairs)
            loss = (logits * weights).mean() + after.x.mean() + after.conv.square().mean()
            found.append(((logits, after), gradients(model, loss, *(state or ()))))
        assert_same_run(found[0][0], found[1][0], 1e-12 if dtype == torch.float64 else 1e-5)
        assert_same_gradients(found[0][1], found[1][1], 1e-9 if dtype == torch.float64 else 1e-3)


@given(
    vocab_size=st.integers(1, 5),
    B=st.integers(1, 4),
    T=st.integers(1, 60),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    repeated=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_tokens_give_the_same_with_and_without_pairs(vocab_size, B, T, carried, reset, repeated, seed):
    torch.manual_seed(seed)
    model = make_exact_model(vocab_size, conv_type="gated" if seed % 2 else "basic")
    tokens, when = make_tokens(B, T, vocab_size), make_reset(reset, B, T)
    if repeated:
        tokens[:] = tokens[:, :1]
    state = State(*(each.round() for each in make_state(model, B))) if carried else None
    with without_pairs():
        expected = model(tokens, state, reset=when)
    assert_same_run(model(tokens, state, reset=when), expected)


@both_sizes
def test_padding_on_either_side_gives_the_same_with_and_without_pairs(size):
    model, tokens = make_exact_model(size[0]), make_text(size)
    B, T = tokens.shape
    for side in ("left", "right"):
        padded, reset = tokens.clone(), torch.zeros(B, T, dtype=torch.bool)
        if side == "left":
            padded[0, :15] = 0
            reset[0, 15] = reset[1, 0] = True
        else:
            padded[0, -15:] = 0
        results = [run(model, padded, None, reset, pairs=pairs) for pairs in (True, False)]
        assert_same_run(*results)
        if side == "left":
            assert torch.equal(results[0][0][0, 15:], model(tokens[:1, 15:])[0][0])


@both_sizes
def test_a_stream_uses_pairs_and_changes_no_bit(size):
    model, tokens = make_exact_model(size[0]), make_text(size)
    reset = make_reset("random", *tokens.shape)
    with torch.no_grad():
        expected = run(model, tokens, None, reset, pairs=False)
        for chunk_size in (7, 39, 599):
            with watched_pairs() as seen:
                pieces = list(model.stream(tokens, reset=reset, chunk_size=chunk_size))
            assert pairs_were_used(seen) == (size is SMALL or chunk_size == 599)
            assert_same_run((torch.cat([logits for logits, _ in pieces], 1), pieces[-1][1]), expected)


def test_a_piece_whose_first_token_is_not_the_first_of_all_computes_no_drive_of_its_own():
    model, tokens = make_model(SMALL[0]), make_text(SMALL)
    with torch.no_grad(), mock.patch.object(fast_layer, "drive", wraps=fast_layer.drive) as drive:
        whole, _ = model(tokens)
        drive.reset_mock()
        answers, _ = model.predict(tokens, chunk_size=8)
        assert drive.call_count == 1  # the table of all pairs
        pieces = [logits for logits, _ in model.stream(tokens, chunk_size=8)]
        assert drive.call_count == 2
    assert torch.equal(answers, whole.argmax(-1))
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=1e-5)


@both_sizes
def test_pairs_are_used_with_tokens_of_any_integer_and_stride(size):
    model, tokens = make_exact_model(size[0]), make_text(size)
    expected = run(model, tokens, pairs=False)
    assert_same_run(run(model, tokens.int(), pairs=True), expected)
    assert_same_run(run(model, tokens.T.contiguous().T, pairs=True), expected)


@pytest.mark.parametrize(
    ("dropouts", "used"),
    [
        ({}, True),
        ({"ffn_dropout": 0.5}, True),
        ({"head_dropout": 0.5}, True),
        ({"prelayers_dropout": 0.5}, False),
        ({"neuron_dropout": 0.5}, False),
    ],
    ids=str,
)
def test_pairs_are_not_used_while_a_dropout_draws_in_the_first_layer(dropouts, used):
    for size in SIZES:
        model, tokens = make_model(size[0], **dropouts).train(), make_text(size)
        with watched_pairs() as seen:
            model(tokens)
        assert pairs_were_used(seen) == used
        with watched_pairs() as seen:
            model.eval()(tokens)
        assert pairs_were_used(seen)


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_in_the_first_layer_is_drawn_anew_at_every_step(grad):
    """A model whose convolution is shut and that holds no state: equal tokens give equal logits but for dropout."""
    model = make_exact_model(3, prelayers_dropout=0.5, n_layers=1, conv_type="gated").train()
    with torch.no_grad():
        model.backbone.layers[0].conv.g.fill_(-200.0)
    tokens = torch.ones(1, 200, dtype=torch.long)
    reset = torch.ones(1, 200, dtype=torch.bool)
    with torch.set_grad_enabled(grad):
        assert len(model(tokens, reset=reset)[0][0].unique(dim=0)) > 1
        assert len(model(tokens, reset=reset, chunk_size=50)[0][0].unique(dim=0)) > 1
        assert len(model.eval()(tokens, reset=reset)[0][0].unique(dim=0)) == 1


def test_pairs_are_not_used_where_they_do_not_pay():
    sizes = [(3, 1, 5), (3, 4, 1), (7, 2, 9), (50, 2, 100), (1000, 2, 1000), (3, 0, 5), (3, 5, 0)]
    for vocab_size, B, T in sizes:
        model = make_model(vocab_size, n_layers=1)
        with watched_pairs() as seen:
            model(make_tokens(B, T, vocab_size))
        assert not pairs_were_used(seen), (vocab_size, B, T)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_pairs_are_not_used_by_a_backend_that_computes_every_step(backend):
    model, tokens = make_model(3), make_text(SMALL)
    with use_backend(backend), watched_pairs() as seen:
        model(tokens)
    assert not pairs_were_used(seen)


CHANGES = {
    "a hook on the embedding": lambda model: model.embedding.register_forward_hook(lambda *a: None),
    "a hook on the backbone": lambda model: model.backbone.register_forward_pre_hook(lambda *a: None),
    "a hook on the first layer": lambda model: model.backbone.layers[0].register_full_backward_hook(lambda *a: None),
    "a hook on a part of it": lambda model: model.backbone.layers[0].conv.register_forward_hook(lambda *a: None),
    "a largest norm": lambda model: setattr(model.embedding, "max_norm", 1.0),
    "another embedding": lambda model: setattr(
        model, "embedding", type("Other", (torch.nn.Embedding,), {})(model.vocab_size, 6, dtype=torch.float64)
    ),
    "own forward": lambda model: setattr(model.embedding, "forward", model.embedding.forward),
}


@pytest.mark.parametrize("name", CHANGES)
def test_pairs_are_not_used_where_someone_looks_or_a_part_is_exchanged(name):
    model, tokens = make_model(3), make_text(SMALL)
    CHANGES[name](model)
    with watched_pairs() as seen:
        result = model(tokens)
    assert not pairs_were_used(seen)
    with use_backend("torch"):
        assert_same_run(result, model(tokens), 1e-12)


@both_sizes
def test_one_step_after_many_is_not_a_matter_of_pairs(size):
    model, tokens = make_exact_model(size[0]), make_text(size)
    _, state = model(tokens)
    with watched_pairs() as seen:
        logits, _ = model(tokens[:, :1], state)
    assert not pairs_were_used(seen)
    assert torch.equal(logits, model(torch.cat((tokens, tokens[:, :1]), 1))[0][:, -1:])


def test_checkpointing_and_pairs_go_together():
    model, tokens = make_model(3), make_text(SMALL)
    expected = gradients(model, model(tokens)[0].square().sum())
    model.backbone.gradient_checkpointing = True
    with watched_pairs() as seen:
        found = gradients(model, model(tokens)[0].square().sum())
    assert pairs_were_used(seen)
    assert_same_gradients(found, expected, 1e-10)


def test_drives_and_chunks_may_not_be_given_together():
    model, tokens = make_model(3), make_text(SMALL)
    drives = token_pairs.first_drives(model, tokens, None, None)
    assert drives.shape == (2, 40, sum(model.backbone.layers[0].neuron.widths))
    with pytest.raises(ValueError, match="give either drives or chunk_size"):
        model.backbone(model.embedding(tokens), drives=drives, chunk_size=5)
