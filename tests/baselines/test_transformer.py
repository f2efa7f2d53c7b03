"""The cache of the Transformer and its positions."""

import pytest
import torch
from baseline_cases import VOCABULARY, draw, tokens

from latchwork.baselines.transformer import Transformer, turn


def test_without_a_window_the_cache_grows_and_with_one_it_does_not():
    given = tokens(1, 30)
    assert draw("transformer")(given)[1][0].keys.shape[1] == 30
    model = draw("transformer with a window")
    for logits, state in model.stream(given, chunk_size=8):
        assert logits.shape[2] == VOCABULARY
        assert {cache.keys.shape[1] for cache in state} == {4}
    assert int(state[0].steps) == 30
    assert state[0].keys.untyped_storage().nbytes() == state[0].keys.nbytes


def test_a_window_hides_what_is_further_back_in_each_layer():
    model, given = draw("transformer with a window").eval(), tokens(1, 30)  # two layers see 2 * 4 steps back
    other = given.clone()
    other[0, 10] = (other[0, 10] + 1) % VOCABULARY
    with torch.no_grad():
        change = (model(given)[0] - model(other)[0]).abs().amax(-1)[0]
    assert (change > 1e-9).nonzero().flatten().tolist() == list(range(10, 19))


def test_a_window_wider_than_the_sequence_changes_nothing():
    torch.manual_seed(1)
    plain = Transformer(VOCABULARY, width=8)
    wide = Transformer(VOCABULARY, width=8, window=20)
    wide.load_state_dict(plain.state_dict())
    given = tokens(2, 20)
    torch.testing.assert_close(plain(given)[0], wide(given)[0])


def test_scores_depend_on_the_distance_only_even_after_a_million_steps():
    q, k = torch.randn(1, 1, 1, 6), torch.randn(1, 1, 1, 6)

    def score(at, distance):
        return (turn(q, torch.tensor(at + distance)) * turn(k, torch.tensor(at))).sum()

    torch.testing.assert_close(score(0, 3), score(2**20, 3), rtol=0, atol=1e-5)
    assert (score(0, 3) - score(0, 4)).abs() > 1e-3
    assert torch.equal(turn(q, torch.tensor(0)), q)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 9}, "width must be a multiple of 2 heads = 8; got 9"),
        ({"width": 12}, "width must be a multiple of 2 heads = 8; got 12"),
        ({"width": 8, "window": 0}, "window must be at least 1, or None; got 0"),
        ({"width": 8, "positions": 0}, "positions must be at least 1, or None; got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Transformer(VOCABULARY, **options)


def test_learned_positions_end_somewhere():
    model = Transformer(VOCABULARY, width=8, positions=5)
    _, state = model(tokens(1, 5))
    with pytest.raises(ValueError, match=r"tokens must be at most 5 with those before.*; got 1 more"):
        model(tokens(1, 1), state)


def test_with_learned_positions_it_begins_as_gpt2_does():
    model = Transformer(VOCABULARY, 8, width=128, positions=64)
    assert model.layers[0].up.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.layers[0].down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert model.position_embedding.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not model.layers[0].qkv.bias.any()
    assert model.layers[0].attention_norm.weight.eq(1).all()
    given = torch.zeros(1, 3, dtype=torch.int64)
    logits = model(given)[0]
    assert not torch.equal(logits[:, 1], logits[:, 2])  # one token thrice: positions alone tell them apart
