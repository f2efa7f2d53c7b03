"""Generation: greedy is the best token each time, draws stay among the allowed, and rows do not know of each other."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import VARIANTS, make_model

from latchwork.models.generation import align_prompts, choose_tokens

each_variant = pytest.mark.parametrize("variant", VARIANTS)


def greedy(model, prompt, steps):
    """Every token computed from the whole sequence anew."""
    tokens = torch.as_tensor(prompt).reshape(1, -1)
    with torch.no_grad():
        for _ in range(steps):
            tokens = torch.cat((tokens, model(tokens)[0][:, -1].argmax(-1, keepdim=True)), 1)
    return tokens[0, -steps:]


@each_variant
def test_greedy_takes_the_best_token_each_time_and_prompts_of_any_lengths_go_on_as_if_alone(variant):
    model = make_model(**VARIANTS[variant])
    prompts = [[1], [2, 3, 4, 5, 6, 0, 1], [6, 6], [0, 0, 0]]
    together = model.generate(prompts, 9, temperature=0)
    for row, prompt in zip(together, prompts, strict=True):
        assert torch.equal(row, greedy(model, prompt, 9))
        assert torch.equal(row, model.generate(prompt, 9, temperature=0)[0])


def test_a_prompt_may_take_any_form():
    model = make_model()
    expected = model.generate(torch.tensor([[1, 2, 3]]), 4, temperature=0)
    forms = [[1, 2, 3], (1, 2, 3), torch.tensor([1, 2, 3]), [[1, 2, 3]], [torch.tensor([1, 2, 3])]]
    forms += [torch.tensor([[1, 2, 3]], dtype=torch.int32), torch.tensor([1, 0, 2, 0, 3])[::2]]
    for form in forms:
        assert torch.equal(model.generate(form, 4, temperature=0), expected)
    both = model.generate(torch.tensor([[1, 2, 3], [4, 5, 6]]), 4, temperature=0)
    assert torch.equal(both, model.generate([[1, 2, 3], torch.tensor([4, 5, 6])], 4, temperature=0))


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_prompts_are_moved_to_the_right_and_reset_where_they_begin(lengths):
    prompts = [list(range(1, length + 1)) for length in lengths]
    tokens, reset = align_prompts(prompts, torch.device("cpu"))
    for prompt, row, begins in zip(prompts, tokens.tolist(), reset.tolist(), strict=True):
        assert row == [0] * (max(lengths) - len(prompt)) + prompt
        assert begins == [place == max(lengths) - len(prompt) for place in range(max(lengths))]


def test_the_best_of_one_is_greedy():
    model = make_model()
    assert torch.equal(model.generate([1, 2], 20, top_k=1, seed=3), model.generate([1, 2], 20, temperature=0))
    assert torch.equal(model.generate([1, 2], 20, top_p=1e-9), model.generate([1, 2], 20, temperature=0))
    for tiny in ({"top_p": 1e-300}, {"temperature": 1e-308}, {"temperature": 1e-308, "top_p": 1e-300, "top_k": 2}):
        assert torch.equal(model.generate([1, 2], 20, **tiny), model.generate([1, 2], 20, temperature=0))


def draw_logits(data, B, V):
    kind = data.draw(st.sampled_from(["continuous", "ties", "huge", "one"]))
    torch.manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    logits = torch.randn(B, V)
    return {
        "continuous": lambda: logits * 3,
        "ties": lambda: logits.round(),
        "huge": lambda: logits * 1e30,
        "one": lambda: torch.full((B, V), -torch.inf).index_fill(1, torch.tensor([V // 2]), 0.0),
    }[kind]()


@settings(max_examples=100)
@given(data=st.data(), B=st.integers(1, 4), V=st.integers(1, 30))
def test_no_token_is_drawn_outside_of_the_k_best_or_the_p_likeliest(data, B, V):
    logits = draw_logits(data, B, V)
    temperature = data.draw(st.sampled_from([0.1, 1.0, 5.0]))
    top_k = data.draw(st.none() | st.integers(1, V + 2))
    top_p = data.draw(st.none() | st.floats(0.01, 1))
    for _ in range(3):
        new = choose_tokens(logits, temperature, top_k, top_p, None)
        assert (new.shape, new.dtype) == ((B,), torch.int64)
        for row, token in zip(logits.double() / temperature, new.tolist(), strict=True):
            better = row > row[token]
            assert row[token] > -torch.inf
            if top_k is not None:
                assert better.sum() < top_k
                row = torch.where(row >= row.sort(descending=True).values[min(top_k, V) - 1], row, -torch.inf)
            if top_p is not None and top_p < 1:
                assert row.softmax(-1)[better].sum() < top_p + 1e-5


@pytest.mark.parametrize(("top_k", "top_p", "allowed"), [(None, None, 4), (2, None, 2), (None, 0.75, 2), (3, 0.5, 1)])
def test_every_allowed_token_is_drawn_as_often_as_it_is_likely(top_k, top_p, allowed):
    chances = torch.tensor([0.1, 0.5, 0.3, 0.1])
    logits = chances.log().expand(20_000, 4)
    counts = choose_tokens(logits, 1.0, top_k, top_p, None).bincount(minlength=4) / 20_000
    best = chances.argsort(descending=True, stable=True)[:allowed]
    expected = torch.zeros(4).index_copy(0, best, chances[best] / chances[best].sum())
    torch.testing.assert_close(counts, expected, rtol=0, atol=0.02)


def test_temperature_sharpens_and_flattens():
    logits = torch.tensor([0.0, 1.0]).expand(20_000, 2)
    for temperature in (0.5, 1.0, 4.0):
        share = choose_tokens(logits, temperature, None, None, None).double().mean()
        assert share.item() == pytest.approx(1 / (1 + torch.tensor(-1 / temperature).exp().item()), abs=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_logits_of_any_type_are_drawn_from(dtype):
    logits = torch.tensor([[0.0, 50.0], [50.0, 0.0]], dtype=dtype)
    assert choose_tokens(logits, 1.0, 2, 0.9, None).tolist() == [1, 0]
    assert choose_tokens(logits, 0, None, None, None).tolist() == [1, 0]


def test_a_seed_gives_the_same_tokens_whatever_was_drawn_before():
    model, options = make_model(), {"temperature": 2.0, "top_k": 5}
    one = model.generate([[1], [2]], 30, seed=5, **options)
    torch.rand(7)
    assert torch.equal(one, model.generate([[1], [2]], 30, seed=5, **options))
    assert not torch.equal(one, model.generate([[1], [2]], 30, seed=6, **options))


def test_a_seed_leaves_torchs_own_generator_alone():
    model = make_model()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model.generate([1], 5, seed=9)
    assert torch.equal(torch.rand(3), expected)


def test_without_a_seed_torchs_own_generator_is_used():
    model, found = make_model(), []
    for _ in range(2):
        torch.manual_seed(4)
        found.append(model.generate([1], 20, temperature=3.0))
    assert torch.equal(*found)
    assert not torch.equal(found[0], model.generate([1], 20, temperature=3.0))


@pytest.mark.parametrize("stop_token", range(7))
def test_a_row_that_drew_the_stop_token_repeats_it_and_generation_ends_when_all_did(stop_token):
    model, prompts = make_model(), [[1], [2, 3], [4, 5, 6]]
    free = model.generate(prompts, 40, temperature=2.0, seed=1)
    stopped = model.generate(prompts, 40, temperature=2.0, seed=1, stop_token=stop_token)
    ends = [row.tolist().index(stop_token) if stop_token in row else 40 for row in free]
    assert stopped.shape[1] <= 40
    for row, expected, end in zip(stopped, free, ends, strict=True):
        end = min(end, stopped.shape[1])
        assert torch.equal(row[:end], expected[:end])
        assert (row[end:] == stop_token).all()
    assert stopped.shape[1] == 40 or (stopped[:, -1] == stop_token).all()
    if stopped.shape[1] < 40:
        assert not (stopped[:, :-1] == stop_token).all(0).any()


@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {"seed": 2, "top_k": 3}, {"seed": 2, "stop_token": 3}, {"seed": 1, "top_p": 0.7}]
)
def test_the_iterator_gives_the_same_tokens(options):
    model, prompts = make_model(), [[1, 2], [3]]
    steps = list(model.generate_stream(prompts, 15, **options))
    assert all(each.shape == (2,) for each in steps)
    assert torch.equal(torch.stack(steps, 1), model.generate(prompts, 15, **options))


def test_the_iterator_may_be_left_early():
    model = make_model().train()
    stream = model.generate_stream([1], 100, seed=0)
    next(stream)
    assert model.training
    stream.close()
    assert model.training


def test_no_new_tokens_are_none():
    model = make_model()
    for prompt, rows in (([1, 2], 1), ([[1], [2, 3]], 2), (torch.zeros(3, 4).long(), 3)):
        new = model.generate(prompt, 0)
        assert (new.shape, new.dtype) == ((rows, 0), torch.int64)
    assert list(model.generate_stream([1], 0)) == []


@pytest.mark.parametrize("training", [False, True])
def test_generation_is_without_dropout_and_gradients_and_restores_the_mode(training):
    model = make_model(ffn_dropout=0.5, head_dropout=0.5, neuron_dropout=0.5)
    expected = model.generate([1, 2], 10, temperature=0)
    model.train(training)
    new = model.generate([1, 2], 10, temperature=0)
    assert torch.equal(new, expected)
    assert model.training == training
    assert all(part.training == training for part in model.modules())
    assert torch.is_grad_enabled()


def test_each_part_gets_its_own_mode_back():
    model = make_model().train()
    model.backbone.eval()
    model.generate([1], 2)
    assert not model.backbone.training


def test_the_mode_is_restored_after_an_error():
    model = make_model().train()
    with pytest.raises(IndexError, match="tokens must be at least 0 and less than vocab_size = 7"):
        model.generate([1, 7], 3)
    assert model.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0; got -1"),
        ({"temperature": -0.1}, "temperature must be at least 0; got -0.1"),
        ({"temperature": float("nan")}, "temperature must be at least 0; got nan"),
        ({"top_k": 0}, "top_k must be at least 1, or None; got 0"),
        ({"top_p": 0.0}, "top_p must be more than 0 and at most 1, or None; got 0.0"),
        ({"top_p": 1.5}, "top_p must be more than 0 and at most 1, or None; got 1.5"),
        ({"top_p": float("nan")}, "top_p must be more than 0"),
        ({"prompt": []}, "prompt must be token numbers"),
        ({"prompt": [[]]}, "prompt must be token numbers"),
        ({"prompt": [[1], []]}, "prompt must be token numbers"),
        ({"prompt": [[1.0]]}, "prompt must be token numbers"),
        ({"prompt": torch.zeros(2, 0).long()}, "prompt must be token numbers"),
        ({"prompt": torch.zeros(0, 2).long()}, "prompt must be token numbers"),
        ({"prompt": torch.zeros(2, 2)}, "prompt must be token numbers"),
        ({"prompt": torch.zeros(2, 2, dtype=torch.int16)}, "int64 or int32; got torch.int16"),
        ({"prompt": torch.zeros(2, 2, dtype=torch.uint8)}, "int64 or int32; got torch.uint8"),
        ({"prompt": torch.zeros(2, 2).bool()}, "int64 or int32; got torch.bool"),
        ({"prompt": [torch.tensor([1]), torch.tensor([True])]}, "prompt must be token numbers"),
        ({"prompt": [True, False]}, "prompt must be token numbers"),
        ({"prompt": [1, True]}, "prompt must be token numbers"),
        ({"prompt": [[1], [2, True]]}, "prompt must be token numbers"),
        ({"prompt": [1, 2.5]}, "int64 or int32; got torch.float32"),
        ({"prompt": [2**70]}, "prompt must be token numbers"),
        ({"prompt": [[1], [2, [3]]]}, "prompt must be token numbers"),
        ({"prompt": "text"}, "prompt must be token numbers"),
        ({"prompt": torch.tensor(1)}, r"prompt must be \(T,\) or \(B, T\); got \(\)"),
        ({"prompt": torch.zeros(1, 1, 1).long()}, r"prompt must be \(T,\) or \(B, T\); got \(1, 1, 1\)"),
    ],
    ids=str,
)
def test_a_bad_argument_is_named_at_once(arguments, message):
    model = make_model()
    with pytest.raises(ValueError, match=message):
        model.generate(**{"prompt": [1], "max_new_tokens": 2, **arguments})
    with pytest.raises(ValueError, match=message):
        model.generate_stream(**{"prompt": [1], "max_new_tokens": 2, **arguments})


def test_one_bad_row_is_enough_and_what_is_forbidden_is_not_bad():
    logits = torch.zeros(3, 4)
    logits[:, 1:] = -torch.inf
    assert choose_tokens(logits, 0, None, None, None).tolist() == [0, 0, 0]
    assert choose_tokens(logits, 1, None, None, None).tolist() == [0, 0, 0]
    for bad, options in itertools.product((torch.nan, torch.inf), [(0, None, None), (1, None, None), (1, 2, 0.5)]):
        logits[1, 2] = bad
        with pytest.raises(FloatingPointError, match=f"the largest logit of each row must be finite.*got {bad}"):
            choose_tokens(logits, *options, None)
    model = make_model(tie_weights=False)
    model.head.weight.data[3] = torch.nan
    with pytest.raises(FloatingPointError, match="got nan"):
        model.generate([[1], [2]], 3)


DOORS = {
    "forward": lambda model, tokens: model(tokens),
    "hidden": lambda model, tokens: model.hidden(tokens),
    "stream": lambda model, tokens: next(model.stream(tokens, chunk_size=2)),
    "generate": lambda model, tokens: model.generate(tokens, 1),
    "loss": lambda model, tokens: model.loss(tokens, torch.ones(2, 3).long()),
    "targets of the loss": lambda model, targets: model.loss(torch.ones(2, 3).long(), targets),
}


@pytest.mark.parametrize("door", DOORS)
def test_tokens_prompts_and_targets_obey_one_rule(door):
    model = make_model()
    for dtype in (torch.int64, torch.int32):
        DOORS[door](model, torch.ones(2, 3, dtype=dtype))
    for dtype in (torch.int16, torch.int8, torch.uint8, torch.bool, torch.float32, torch.float64, torch.bfloat16):
        with pytest.raises(ValueError, match=f"int64 or int32.*; got {dtype}"):
            DOORS[door](model, torch.ones(2, 3).to(dtype))
