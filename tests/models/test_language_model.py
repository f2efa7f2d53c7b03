"""The language model: embedding, cascade, head; whole, in chunks and token by token; and what flows back."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import (
    EXACT_VARIANTS,
    VARIANTS,
    assert_same_gradients,
    assert_same_run,
    cut,
    gradients,
    make_config,
    make_exact_model,
    make_model,
    make_state,
    make_tokens,
    run_in_pieces,
)

from latchwork import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig, State
from reset_cases import RESETS, make_reset

each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_exact_variant = pytest.mark.parametrize("variant", EXACT_VARIANTS)
CUTS = [[1], [3, 1], [16, 1, 7]]


@each_variant
def test_logits_are_the_head_of_the_cascade_of_the_embedding(variant):
    model = make_model(**VARIANTS[variant])
    tokens = make_tokens(2, 9)
    for state, reset in itertools.product((None, make_state(model, 2)), ("never", "random", "first")):
        when = make_reset(reset, 2, 9)
        logits, after = model(tokens, state, reset=when)
        y, expected = model.backbone(model.embedding.weight[tokens], state, reset=when)
        assert_same_run((logits, after), (y @ model.head.weight.T, expected), 1e-12)
        assert isinstance(after, State)


@each_variant
def test_any_cutting_in_time_equals_the_whole(variant):
    """In float32 a long piece takes the kernel's way, and a short one does not."""
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        if dtype == torch.float32 and "levels" in variant:
            continue  # where a rounding may tip a state by a whole level
        model = make_model(**VARIANTS[variant], dtype=dtype)
        tokens, reset = make_tokens(3, 33), make_reset("random", 3, 33)
        for state, sizes in itertools.product((None, make_state(model, 3)), CUTS):
            actual = run_in_pieces(model, tokens, cut(33, sizes), state, reset)
            assert_same_run(actual, model(tokens, state, reset=reset), tolerance)


@pytest.mark.parametrize("conv_type", ["basic", "gated"])
def test_one_token_at_a_time_equals_the_whole_at_widths_of_real_models(conv_type):
    for d_model, B in itertools.product((140, 300), (1, 3)):
        model = MinMaxRNC_LM(500, make_config(d_model=d_model, d_state=150, conv_type=conv_type)).eval()
        tokens = make_tokens(B, 12, 500)
        with torch.no_grad():
            assert_same_run(run_in_pieces(model, tokens, cut(12, [1])), model(tokens), 1e-5)
            assert_same_run(run_in_pieces(model, tokens, cut(12, [3, 1])), model(tokens), 1e-5)


@each_exact_variant
def test_nothing_rounds_in_the_exact_models(variant):
    options = EXACT_VARIANTS[variant]
    model, tokens = make_exact_model(**options), make_tokens(3, 33)
    logits, state = model(tokens)
    part = 1024 if "gated ffn" in variant else 64  # of 1: its products halve what was halved
    assert logits.abs().max() * part < 1 / torch.finfo(logits.dtype).eps
    assert logits.unique().numel() > 20
    if logits.dtype == torch.float32:
        wide, wide_state = model.double()(tokens)
        assert_same_run((logits.double(), state.to(torch.float64)), (wide, wide_state))
    assert torch.equal(logits * part, (logits * part).round())


@given(
    data=st.data(),
    variant=st.sampled_from(sorted(EXACT_VARIANTS)),
    B=st.integers(1, 3),
    T=st.integers(1, 20),
    reset=st.sampled_from(RESETS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_chunks_of_any_exact_model_equal_the_whole_bit_for_bit(data, variant, B, T, reset, seed):
    sizes = data.draw(st.lists(st.integers(1, T), min_size=1, max_size=4))
    torch.manual_seed(seed)
    model = make_exact_model(**EXACT_VARIANTS[variant])
    tokens, when = make_tokens(B, T), make_reset(reset, B, T)
    assert_same_run(run_in_pieces(model, tokens, cut(T, sizes), None, when), model(tokens, reset=when))


@each_exact_variant
def test_chunk_size_and_stream_equal_the_whole_bit_for_bit(variant):
    model = make_exact_model(3, **EXACT_VARIANTS[variant])
    tokens, reset = make_tokens(2, 33, 3), make_reset("random", 2, 33)
    _, state = model(make_tokens(2, 5, 3))
    for chunk_size, grad in itertools.product((1, 5, 50), (False, True)):
        with torch.set_grad_enabled(grad):
            whole = model(tokens, state, reset=reset)
            assert_same_run(model(tokens, state, reset=reset, chunk_size=chunk_size), whole)
            pieces = list(model.stream(tokens, state, reset=reset, chunk_size=chunk_size))
        assert_same_run((torch.cat([logits for logits, _ in pieces], 1), pieces[-1][1]), whole)
        sizes = [logits.shape[1] for logits, _ in pieces]
        assert sizes == [min(chunk_size, 33 - at) for at in range(0, 33, chunk_size)]


def test_chunk_size_gives_the_gradients_of_the_whole():
    model, tokens = make_model(train_init=True), make_tokens(2, 33)
    loss = model(tokens, chunk_size=7)[0].square().sum()
    assert_same_gradients(gradients(model, loss), gradients(model, model(tokens)[0].square().sum()), 1e-9)


def test_a_stream_of_nothing_yields_nothing():
    assert list(make_model().stream(make_tokens(2, 0), chunk_size=3)) == []


@pytest.mark.parametrize("conv_type", ["basic", "gated"])
def test_any_batch_and_length_gives_logits_and_a_state(conv_type):
    model = make_model(3, conv_type=conv_type, dtype=torch.float32)
    for B, T in itertools.product((0, 1, 3), (0, 1, 2, 40)):
        tokens = make_tokens(B, T, 3)
        states, resets = (None, model.initial_state(B)), (None, torch.ones(B, T, dtype=torch.bool))
        for state, reset in itertools.product(states, resets):
            logits, after = model(tokens, state, reset=reset)
            assert (logits.shape, after.conv.shape, after.x.shape) == ((B, T, 3), (2, B, 6), (2, B, 6))
            assert not logits.isnan().any()
            logits.sum().backward()


def test_neither_int32_nor_strides_of_tokens_and_reset_matter():
    model = make_model(3)
    state = make_state(model, 2)
    for T in (1, 6, 40):
        tokens, reset = make_tokens(2, T, 3), make_reset("random", 2, T)
        assert_same_run(model(tokens.int(), state), model(tokens, state))
        scattered = tokens.repeat_interleave(2, 1)[:, ::2]
        assert_same_run(model(scattered, reset=reset.T.contiguous().T), model(tokens, reset=reset), 1e-12)
        assert_same_run(model(tokens[:1].expand(2, T)), model(tokens[:1].repeat(2, 1)), 1e-12)


def test_rows_of_a_batch_do_not_see_each_other():
    model, tokens = make_exact_model(), make_tokens(5, 20)
    logits, state = model(tokens)
    for row in range(5):
        alone, alone_state = model(tokens[row : row + 1])
        assert_same_run((logits[row : row + 1], state.select([row])), (alone, alone_state))


def test_the_future_is_not_seen():
    model, tokens = make_exact_model(), make_tokens(2, 20)
    changed = tokens.clone()
    changed[:, 12:] = (changed[:, 12:] + 1) % 7
    assert torch.equal(model(tokens)[0][:, :12], model(changed)[0][:, :12])
    assert not torch.equal(model(tokens)[0][:, 12:], model(changed)[0][:, 12:])


@each_variant
def test_truncated_backpropagation_stops_where_the_state_was_detached(variant):
    model = make_model(**VARIANTS[variant])
    u = torch.randn(2, 8, 6, dtype=torch.float64, requires_grad=True)
    _, state = model.backbone(u)
    y, _ = model.backbone(torch.randn(2, 5, 6, dtype=torch.float64), state.detach())
    assert torch.autograd.grad(y.sum(), u, allow_unused=True) == (None,)
    y, _ = model.backbone(torch.randn(2, 5, 6, dtype=torch.float64), state)
    (grad,) = torch.autograd.grad(y.sum() + y.square().sum(), u)
    assert grad[:, -1].any()  # through the convolution
    assert grad[:, :-1].any()  # through the latches


@pytest.mark.parametrize("variant", ["default", "degree 2", "levels", "no gate, rmsnorm, x0"])
def test_without_detaching_chunks_have_the_gradient_of_the_whole(variant):
    model = make_model(**VARIANTS[variant])
    tokens, reset = make_tokens(2, 30), make_reset("random", 2, 30)
    whole = gradients(model, model(tokens, reset=reset)[0].square().sum())
    logits, _ = run_in_pieces(model, tokens, cut(30, [4, 13]), None, reset)
    assert_same_gradients(gradients(model, logits.square().sum()), whole, 1e-9)


def test_detached_chunks_have_the_sum_of_their_own_gradients():
    model, tokens = make_model(), make_tokens(2, 20)
    _, state = model(tokens[:, :8])
    first = gradients(model, model(tokens[:, :8])[0].square().sum())
    second = gradients(model, model(tokens[:, 8:], state.detach())[0].square().sum())
    state, total = None, 0
    for piece in (slice(0, 8), slice(8, 20)):
        logits, state = model(tokens[:, piece], state)
        total, state = total + logits.square().sum(), state.detach()
    assert_same_gradients(gradients(model, total), {name: first[name] + second[name] for name in first}, 1e-10)


def test_the_dropout_of_the_head_is_drawn_in_training_only():
    model, tokens = make_model(head_dropout=0.5), make_tokens(2, 6)
    assert torch.equal(model(tokens)[0], model(tokens)[0])
    model.train()
    assert not torch.equal(model(tokens)[0], model(tokens)[0])


def test_a_tied_head_is_the_embedding_and_learns_from_both_sides():
    model, tokens = make_model(), torch.tensor([[1, 2]])
    assert model.head.weight is model.embedding.weight
    grad = gradients(model, model(tokens)[0].square().sum())["embedding.weight"]
    assert grad[5].any()  # a token that did not come
    untied = make_model(tie_weights=False)
    grad = gradients(untied, untied(tokens)[0].square().sum())["embedding.weight"]
    assert not grad[[0, 3, 4, 5, 6]].any()


def test_the_language_model_builds_the_resolved_backbone():
    config = MinMaxRNCLMConfig(backbone=make_config().backbone, output_gate=False, conv_type="gated", ffn_dropout=0.4)
    model = MinMaxRNC_LM(7, config)
    assert model.backbone.config == config.resolved_backbone
    assert model.config == config
    layer = model.backbone.layers[1]
    assert (layer.neuron.output_gate, layer.ffn.dropout.p, hasattr(layer.conv, "g")) == (False, 0.4, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": torch.zeros(2, 5)}, r"tokens must be int64 or int32 \(B, T\); got torch.float32 \(2, 5\)"),
        ({"tokens": torch.zeros(5).long()}, r"tokens must be int64 or int32 \(B, T\); got torch.int64 \(5,\)"),
        ({"tokens": torch.zeros(2, 5).bool()}, "tokens must be int64 or int32"),
        ({"state": State(torch.zeros(2, 3, 6), torch.zeros(2, 2, 6))}, "state.conv must be"),
        ({"state": State(torch.zeros(2, 2, 6), torch.zeros(2, 2, 7))}, "state.x must be"),
        ({"reset": torch.zeros(2, 4).bool()}, r"reset must be bool \(B, T\) = \(2, 5\); got torch.bool \(2, 4\)"),
        ({"reset": torch.zeros(2, 5).long()}, "reset must be bool"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, or None; got 0"),
    ],
    ids=str,
)
def test_an_argument_that_does_not_fit_is_named(arguments, message):
    model = make_model()
    with pytest.raises(ValueError, match=message):
        model(**{"tokens": torch.zeros(2, 5).long(), **arguments})
    with pytest.raises(ValueError, match=message):
        model.stream(**{"tokens": torch.zeros(2, 5).long(), "chunk_size": 2, **arguments})
    if "chunk_size" not in arguments:
        with pytest.raises(ValueError, match=message):
            model.loss(**{"tokens": torch.zeros(2, 5).long(), "targets": torch.zeros(2, 5).long(), **arguments})


def test_a_token_outside_the_vocabulary_is_an_error_that_says_so():
    for bad, T in itertools.product((7, -1, 10**12), (1, 5, 100)):
        model, tokens = make_model(), make_tokens(1, T)
        tokens[0, -1] = bad
        with pytest.raises(IndexError, match=r"tokens must be at least 0 and less than vocab_size = 7; got .* to"):
            model(tokens)


def test_a_vocabulary_must_have_a_size():
    for vocab_size in (0, -1, 2.0, "7", None):
        with pytest.raises(ValueError, match="vocab_size must be an integer of at least 1; got"):
            MinMaxRNC_LM(vocab_size, make_config())


def test_a_backbone_configuration_is_no_language_model():
    with pytest.raises(TypeError, match="config must be a MinMaxRNCLMConfig; got MinMaxRNCConfig"):
        MinMaxRNC_LM(7, MinMaxRNCConfig.small())
