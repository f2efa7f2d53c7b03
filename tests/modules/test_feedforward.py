"""The two feed-forward networks equal their formulas, and have the right width."""

import module_definitions as definition
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from module_definitions import ACTIVATIONS, assert_close, randomise_

from latchwork.modules import FeedForward, GatedFeedForward
from latchwork.modules.feedforward import hidden_width

both_kinds = pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])


@both_kinds
@pytest.mark.parametrize("act_fn", ACTIVATIONS)
def test_a_feed_forward_network_equals_its_formula(act_fn, kind):
    ffn = randomise_(kind(5, act_fn=act_fn, dropout=0.5).double()).eval()
    for shape in [(2, 3), (0, 4), (1,), ()]:
        u = torch.randn(*shape, 5, dtype=torch.float64)
        assert_close(ffn(u), definition.feed_forward(ffn, act_fn, kind is GatedFeedForward, u))


@given(d_model=st.integers(1, 5000), hundredths=st.integers(1, 800))
@example(d_model=100, hundredths=110)  # 1.1 * 100 is a little more than 110 in floating point
def test_the_hidden_width_is_the_least_even_number_that_is_no_less(d_model, hundredths):
    width = hidden_width(d_model, hundredths / 100)
    assert width % 2 == 0
    assert width * 100 >= hundredths * d_model > (width - 2) * 100


@both_kinds
def test_dropout_is_of_the_output_and_only_in_training(kind):
    ffn = kind(400, dropout=0.25)
    u = torch.randn(5, 400)
    dropped = ffn(u)
    expected = ffn.eval()(u)
    kept = dropped != 0
    assert 0.7 < kept.float().mean() < 0.8
    assert_close(dropped[kept], expected[kept] / 0.75, 1e-5)


@both_kinds
def test_the_defaults_of_a_feed_forward_network_are_those_of_the_paper(kind):
    ffn, u = kind(90), torch.randn(3, 90)
    assert (ffn.dropout.p, ffn.down.in_features) == (0.1, 118)
    ffn.eval()
    assert_close(ffn(u), definition.feed_forward(ffn, "relu", kind is GatedFeedForward, u), 1e-5)
    rows = 236 if kind is GatedFeedForward else 118
    assert sum(each.numel() for each in ffn.parameters()) == rows * 91 + 90 * 119


@both_kinds
@pytest.mark.parametrize(("name", "value"), [("init", "scald"), ("act_fn", "rleu")])
def test_an_unknown_name_is_an_error_that_lists_what_exists(name, value, kind):
    with pytest.raises(ValueError, match=f"{name} must be one of .*; got '{value}'"):
        kind(4, **{name: value})
