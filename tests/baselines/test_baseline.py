"""What holds for every baseline: chunks, causality, gradients, errors."""

import pytest
import torch
from baseline_cases import KINDS, VOCABULARY, draw, tokens, tolerance
from torch.utils import _pytree as pytree

from latchwork.baselines import detach

# Raised by torch itself, where mlstm_kernels compiles what is for GPUs only.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")

every_kind = pytest.mark.parametrize("kind", KINDS)


def leaves(state):
    return pytree.tree_leaves(state)


@every_kind
@pytest.mark.parametrize(("B", "T", "size"), [(1, 9, 1), (2, 70, 7), (3, 150, 67)])
def test_chunks_with_the_state_carried_give_the_logits_of_one_call(kind, B, T, size):
    model, given = draw(kind).eval(), tokens(B, T)
    with torch.no_grad():
        whole, last = model(given)
        pieces = list(model.stream(given, chunk_size=size))
    assert whole.shape == (B, T, VOCABULARY)
    torch.testing.assert_close(torch.cat([logits for logits, _ in pieces], 1), whole, rtol=0, atol=tolerance(kind))
    for here, there in zip(leaves(pieces[-1][1]), leaves(last), strict=True):
        assert here.shape == there.shape
    assert pytree.tree_structure(model.initial_state(B)) == pytree.tree_structure(last)


@every_kind
def test_chunks_of_uneven_lengths_have_the_gradient_of_one_call(kind):
    model, given = draw(kind).eval(), tokens(2, 40)
    weight = torch.randn(2, 40, VOCABULARY, dtype=next(model.parameters()).dtype)
    whole = torch.autograd.grad((model(given)[0] * weight).sum(), list(model.parameters()))
    state, pieces = None, []
    for piece in given.split([1, 2, 18, 19], 1):
        logits, state = model(piece, state)
        pieces.append(logits)
    chunked = torch.autograd.grad((torch.cat(pieces, 1) * weight).sum(), list(model.parameters()))
    for here, there in zip(chunked, whole, strict=True):
        torch.testing.assert_close(here, there, rtol=100 * tolerance(kind), atol=100 * tolerance(kind))


@every_kind
def test_the_initial_state_is_what_no_state_means(kind):
    model, given = draw(kind).eval(), tokens(2, 5)
    assert torch.equal(model(given)[0], model(given, model.initial_state(2))[0])


@every_kind
def test_a_state_is_not_changed_and_can_be_used_twice(kind):
    model = draw(kind).eval()
    with torch.no_grad():
        _, state = model(tokens(2, 6))
        before = pytree.tree_map(torch.clone, state)
        for T in (1, 5):
            given = tokens(2, T)
            assert torch.equal(model(given, state)[0], model(given, state)[0])
    for here, there in zip(leaves(state), leaves(before), strict=True):
        assert torch.equal(here, there)


@every_kind
def test_a_later_token_does_not_change_earlier_logits(kind):
    model, given = draw(kind).eval(), tokens(1, 80)
    other = given.clone()
    other[:, 70:] = (other[:, 70:] + 1) % VOCABULARY
    with torch.no_grad():
        here, there = model(given)[0], model(other)[0]
    torch.testing.assert_close(here[:, :70], there[:, :70], rtol=0, atol=tolerance(kind))
    assert (here[:, 70] - there[:, 70]).abs().max() > 1e-3


@every_kind
def test_the_rows_of_a_batch_do_not_know_of_each_other(kind):
    model, given = draw(kind).eval(), tokens(3, 12)
    with torch.no_grad():
        alone = torch.cat([model(row[None])[0] for row in given])
        torch.testing.assert_close(model(given)[0], alone, rtol=0, atol=tolerance(kind))


@every_kind
def test_every_parameter_has_a_finite_gradient_in_training(kind):
    model = draw(kind).train()
    model(tokens(2, 17))[0].square().sum().backward()
    for name, each in model.named_parameters():
        assert each.grad is not None, name
        assert each.grad.isfinite().all(), name
        assert each.grad.abs().max() > 0, name


@every_kind
def test_dropout_is_in_slstm_and_mlstm_while_training_and_nowhere_else(kind):
    model, given = draw(kind), tokens(2, 17)
    for training in (True, False):
        model.train(training)
        same = torch.equal(model(given)[0], model(given)[0])
        assert same == (not training or kind not in ("slstm", "mlstm"))


@every_kind
def test_a_detached_state_has_the_values_and_no_graph(kind):
    model = draw(kind)
    _, state = model(tokens(2, 3))
    assert any(each.requires_grad for each in leaves(state))
    for here, there in zip(leaves(detach(state)), leaves(state), strict=True):
        assert not here.requires_grad
        assert torch.equal(here, there)


@every_kind
@pytest.mark.parametrize(
    "bad",
    [torch.zeros(3).long(), torch.zeros(2, 3), torch.zeros(2, 0).long(), torch.zeros(0, 2).long()],
    ids=["one dimension", "floats", "no steps", "no rows"],
)
def test_bad_tokens_are_named(kind, bad):
    with pytest.raises(ValueError, match=r"^tokens must be int64 or int32 \(B, T\)"):
        draw(kind)(bad)


@every_kind
def test_a_token_out_of_range_is_named(kind):
    with pytest.raises(IndexError, match=f"tokens must be at least 0 and less than vocabulary = {VOCABULARY}; got"):
        draw(kind)(torch.tensor([[0, VOCABULARY]]))


@every_kind
def test_a_state_of_other_rows_or_another_form_is_named(kind):
    model = draw(kind)
    with pytest.raises(ValueError, match=r"^state must be"):
        model(tokens(2, 3), model.initial_state(3))
    for bad in [(torch.zeros(2),), (), 3]:
        with pytest.raises(ValueError, match=r"^state must be"):
            model(tokens(2, 3), bad)


def test_int32_tokens_are_taken():
    model, given = draw("gru"), tokens(2, 3)
    assert torch.equal(model(given.int())[0], model(given)[0])


def test_a_chunk_size_below_one_is_named_before_anything_runs():
    with pytest.raises(ValueError, match="chunk_size must be at least 1; got 0"):
        draw("gru").stream(tokens(2, 3), chunk_size=0)
    with pytest.raises(ValueError, match="tokens must be"):
        draw("gru").stream(torch.zeros(2, 0).long(), chunk_size=1)
