"""Models inside torch: narrow types, autocast, optimizers, functional calls, copies."""

import copy

import pytest
import torch
from model_cases import VARIANTS, assert_same_run, gradients, make_model, make_state, make_tokens

from latchwork import State
from reset_cases import make_reset

with_and_without_pairs = pytest.mark.parametrize("T", [7, 40], ids=["plain", "pairs"])


def make_inputs(model, T, B=2):
    return make_tokens(B, T, 3), make_state(model, B), make_reset("random", B, T)


NARROW = [name for name in VARIANTS if "no norm" not in name]


@pytest.mark.parametrize(("variant", "T"), [("default", 7), *((name, 40) for name in NARROW)])
def test_weights_in_bfloat16_run_forwards_and_backwards(variant, T):
    model = make_model(3, **VARIANTS[variant], dtype=torch.bfloat16).train()
    tokens, state, reset = make_inputs(model, T)
    logits, after = model(tokens, state, reset=reset)
    assert {logits.dtype, after.conv.dtype, after.x.dtype} == {torch.bfloat16}
    found = gradients(model, logits.float().square().mean())
    assert all(each.isfinite().all() and each.dtype == torch.bfloat16 for each in found.values())
    if "levels" not in variant:  # where a rounding may tip a state by a whole level
        wide, _ = copy.deepcopy(model).float()(tokens, state.to(torch.float32), reset=reset)
        assert (logits.float() - wide).abs().mean() < 0.1 * wide.abs().mean()


@pytest.mark.parametrize(("variant", "T"), [("default", 40), *((name, 7) for name in VARIANTS)])
def test_autocast_runs_forwards_and_backwards(variant, T):
    model = make_model(3, **VARIANTS[variant], dtype=torch.float32).train()
    tokens, state, reset = make_inputs(model, T)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, after = model.loss(tokens, tokens, reset=reset)
        more, _ = model.loss(tokens, tokens, after, reset=reset)
        with torch.no_grad():
            whole, chunked = model(tokens, state)[0], model(tokens, state, chunk_size=5)[0]
    found = gradients(model, loss + more)
    assert loss.isfinite()
    assert all(each.isfinite().all() and each.dtype == torch.float32 for each in found.values())
    assert whole.dtype == chunked.dtype == torch.bfloat16
    if "levels" not in variant:
        assert (loss - model.loss(tokens, tokens, reset=reset)[0]).abs() < 0.1 * loss
        assert (whole.float() - chunked.float()).abs().mean() < 0.1 * whole.float().abs().mean()


def test_a_backbone_under_autocast_has_one_type_whole_and_in_chunks():
    model, u = make_model(dtype=torch.float32).backbone, torch.randn(2, 40, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(u)[0].dtype
        with torch.no_grad():
            assert model(u)[0].dtype == model(u, chunk_size=3)[0].dtype == expected


@with_and_without_pairs
def test_a_state_of_another_type_is_converted(T):
    model = make_model(3, dtype=torch.float32)
    tokens, state, _ = make_inputs(model, T)
    for dtype in (torch.float64, torch.bfloat16):
        converted = state.to(dtype)
        assert_same_run(model(tokens, converted), model(tokens, converted.to(torch.float32)), 1e-5)


def test_models_are_copied_whole_and_apart():
    model, tokens = make_model(3, train_init=True), make_tokens(2, 40, 3)
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embedding.weight
    assert_same_run(twin(tokens), model(tokens))
    with torch.no_grad():
        twin.embedding.weight.zero_()
    assert model.embedding.weight.any()


@with_and_without_pairs
def test_a_functional_call_uses_the_weights_it_is_given(T):
    model, other = make_model(3, dtype=torch.float32), make_model(3, dtype=torch.float32)
    tokens = make_tokens(2, T, 3)
    given = dict(other.named_parameters()) | dict(other.named_buffers())
    result = torch.func.functional_call(model, given, (tokens,))
    assert_same_run(result, other(tokens))


@with_and_without_pairs
def test_inference_mode_gives_the_same(T):
    model, tokens = make_model(3, dtype=torch.float32), make_tokens(2, T, 3)
    expected = model(tokens)
    with torch.inference_mode():
        logits, state = model(tokens)
        logits, state = logits.clone(), State(*(each.clone() for each in state))
    assert_same_run((logits, state), expected)


def test_on_the_meta_device_only_shapes_are_computed():
    with torch.device("meta"):
        model = make_model(3)
        logits, state = model(torch.zeros(2, 40, dtype=torch.long))
    assert (logits.shape, logits.device.type, state.x.shape) == ((2, 40, 3), "meta", (2, 2, 6))
