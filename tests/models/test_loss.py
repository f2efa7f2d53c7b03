"""The loss is the mean cross-entropy of the logits, in value and gradient, however it is computed."""

import pytest
import torch
from model_cases import assert_close, assert_same_gradients, gradients, make_model, make_state, make_tokens
from torch.nn import functional as F

from reset_cases import make_reset

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 5e-2}


def define(model, tokens, targets, state=None, reset=None, ignore_index=-100):
    logits, _ = model(tokens, state, reset=reset)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=ignore_index)


def make_targets(B, T, vocab_size=7):
    return make_tokens(B, T, vocab_size).masked_fill(torch.rand(B, T) < 0.3, -100)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tie_weights", [False, True])
def test_the_loss_and_its_gradients_are_those_of_the_logits(tie_weights, dtype):
    model = make_model(dtype=dtype, tie_weights=tie_weights)
    tokens, targets = make_tokens(3, 15), make_targets(3, 15)
    state, reset = make_state(model, 3), make_reset("random", 3, 15)
    loss, after = model.loss(tokens, targets, state, reset=reset)
    expected = define(model, tokens, targets, state, reset)
    assert loss.dtype == dtype
    assert_close(loss, expected, TOLERANCE[dtype])
    assert_same_gradients(gradients(model, 3 * loss), gradients(model, 3 * expected), TOLERANCE[dtype])
    for one, other in zip(after, model(tokens, state, reset=reset)[1], strict=True):
        assert torch.equal(one, other)


def test_a_frozen_head_or_backbone_gets_no_gradient():
    model, tokens, targets = make_model(dtype=torch.float32, tie_weights=False), make_tokens(2, 9), make_targets(2, 9)
    expected = gradients(model, define(model, tokens, targets))
    for frozen in ("head", "backbone"):
        model.requires_grad_(True)
        getattr(model, frozen).requires_grad_(False)
        model.zero_grad()
        model.loss(tokens, targets)[0].backward()
        for name, value in model.named_parameters():
            if name.startswith(frozen):
                assert value.grad is None
            else:
                assert_close(value.grad, expected[name], 1e-4)


def test_the_loss_draws_the_dropout_of_the_head():
    model, tokens = make_model(dtype=torch.float32, head_dropout=0.5).train(), make_tokens(2, 9)
    torch.manual_seed(2)
    loss = model.loss(tokens, tokens)[0]
    torch.manual_seed(2)
    assert_close(loss, define(model, tokens, tokens), 1e-5)
    assert loss != model.loss(tokens, tokens)[0]


@pytest.mark.parametrize("way", ["fused", "plain", "autocast", "no tokens"])
def test_where_all_is_ignored_the_loss_and_its_gradient_are_zero(way):
    model, tokens = make_model(dtype=torch.float32), make_tokens(2, 5 if way != "no tokens" else 0)
    if way == "plain":
        model.head.register_forward_hook(lambda module, inputs, output: output)
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        loss = model.loss(tokens, torch.full_like(tokens, -100))[0]
    assert loss.item() == 0
    assert not any(each.any() for each in gradients(model, loss).values())


def test_the_loss_takes_int32_targets():
    model, tokens = make_model(dtype=torch.float32), make_tokens(2, 6)
    assert_close(model.loss(tokens.int(), tokens.int())[0], model.loss(tokens, tokens)[0])


@pytest.mark.parametrize("bad", [7, -1])
@pytest.mark.parametrize("way", ["fused", "plain", "autocast"])
def test_a_target_outside_the_vocabulary_is_named(bad, way):
    model, tokens = make_model(dtype=torch.float32), make_tokens(2, 5)
    if way == "plain":
        model.head.register_forward_hook(lambda module, inputs, output: output)
    with (
        pytest.raises(IndexError, match=f"targets must be at least 0 and less than 7; got {bad}"),
        torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"),
    ):
        model.loss(tokens, torch.full((2, 5), bad))


@pytest.mark.parametrize("targets", [(2, 4), (5,), (2, 5, 7)], ids=str)
def test_targets_must_be_shaped_as_tokens(targets):
    with pytest.raises(ValueError, match=r"targets must be \(B, T\) = \(2, 5\), as tokens; got"):
        make_model().loss(make_tokens(2, 5), torch.zeros(targets).long())
