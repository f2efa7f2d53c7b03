"""Generation by transformers against our own, which is the definition."""

import pytest
import torch

pytest.importorskip("transformers")

from huggingface_cases import kinds, make_model, pad, paddings, tokens

from latchwork.models.huggingface import to_huggingface
from latchwork.modules.state import State


@pytest.fixture
def lm():
    return make_model()


@pytest.fixture
def model(lm):
    model = to_huggingface(lm)
    model.generation_config.pad_token_id = 0
    return model


@kinds
def test_greedy_is_our_own_at_temperature_0(kind):
    lm = make_model(**kind)
    ids = tokens(4, 5)
    new = to_huggingface(lm).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    assert torch.equal(new[:, 5:], lm.generate(ids, 12, temperature=0))
    assert len(new[:, 5:].unique()) > 3


@pytest.mark.parametrize("use_cache", [True, False])
@paddings
def test_each_row_of_a_padded_batch_goes_on_as_if_alone(model, lm, masks, use_cache):
    rows = [tokens(sum(mask), seed=number) for number, mask in enumerate(masks)]
    ids, mask = pad(rows, masks, filling=0)
    new = model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, use_cache=use_cache)
    assert torch.equal(new[:, 6:], lm.generate(rows, 8, temperature=0))


@pytest.mark.parametrize("use_cache", [True, False])
def test_beam_search_is_the_search_it_says(model, lm, use_cache):
    rows = [tokens(3, seed=1), tokens(5, seed=2)]
    ids, mask = pad(rows, [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], filling=0)
    new = model.generate(ids, attention_mask=mask, max_new_tokens=6, num_beams=3, use_cache=use_cache)
    assert new[:, 5:].tolist() == [beam_search(lm, row, steps=6, width=3) for row in rows]


def test_beams_change_places_on_the_way(lm):
    """Else the test above would not see a state that stays where it was."""
    rows = [tokens(3, seed=1), tokens(5, seed=2)]
    assert [beam_search(lm, row, steps=6, width=3) for row in rows] != lm.generate(rows, 6, temperature=0).tolist()


@pytest.mark.parametrize("beams", [1, 3])
def test_sampling_repeats_with_its_seed_and_does_not_need_the_state(model, beams):
    ids = tokens(4, 5)

    def draw(seed, **options):
        torch.manual_seed(seed)
        mask = torch.ones_like(ids)
        return model.generate(ids, attention_mask=mask, max_new_tokens=10, do_sample=True, num_beams=beams, **options)

    assert torch.equal(draw(1), draw(1))
    assert torch.equal(draw(1), draw(1, use_cache=False))
    assert not torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_beams": 3, "use_cache": False}])
def test_it_goes_on_from_a_state(model, options):
    before, ids = tokens(2, 6, seed=1), tokens(2, 3, seed=2)
    options = {"max_new_tokens": 6, "do_sample": False, **options}
    state = model(before).state
    continued = model.generate(ids, attention_mask=torch.ones_like(ids), state=state, **options)
    together = torch.cat((before, ids), 1)
    whole = model.generate(together, attention_mask=torch.ones_like(together), **options)
    assert torch.equal(continued[:, 3:], whole[:, 9:])


def test_it_goes_on_from_embeddings(model, lm):
    ids = tokens(2, 5)
    embedded = lm.embedding(ids).detach()
    new = model.generate(inputs_embeds=embedded, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
    assert torch.equal(new, lm.generate(ids, 6, temperature=0))


def test_it_stops_at_the_end_token_and_returns_the_state(model, lm):
    ids = tokens(1, 4)
    expected = lm.generate(ids, 12, temperature=0)[0].tolist()
    stop = next(token for token in expected if token != expected[0])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=stop,
        return_dict_in_generate=True,
    )
    assert output.sequences[0, 4:].tolist() == expected[: expected.index(stop) + 1]
    assert isinstance(output.past_key_values, State)
    torch.testing.assert_close(output.past_key_values, model(output.sequences[:, :-1]).state)


def test_what_needs_a_step_taken_back_is_refused(model):
    ids = tokens(1, 5)
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(ids, max_new_tokens=3, assistant_model=to_huggingface(make_model(seed=1)))
    with pytest.raises(ValueError, match="past_key_values"):
        model.generate(ids, max_new_tokens=3, past_key_values=model(ids).state)
    with pytest.raises(NotImplementedError, match="continuous batching"):
        model.init_continuous_batching()


def test_on_an_apple_gpu_it_asks_whether_a_step_can_be_taken_back(model):
    utils = pytest.importorskip("transformers.generation.utils")
    check = getattr(utils, "DeferredStopCheck", None) or pytest.skip("this transformers does not ask")
    state = model(tokens(1, 3)).state
    assert not check.is_supported(torch.device("mps"), state, cache_is_returned=True, is_assistant=False)


def beam_search(lm, prompt, steps, width):
    """The most probable of the `width` sequences kept at each step, each run anew from its first token."""
    beams = [(0.0, [])]
    for _ in range(steps):
        candidates = []
        for score, new in beams:
            logits, _ = lm(torch.tensor([[*prompt.tolist(), *new]]))
            for token, more in enumerate(logits[0, -1].log_softmax(-1).tolist()):
                candidates.append((score + more, [*new, token]))
        beams = sorted(candidates, reverse=True)[:width]
    return beams[0][1]
