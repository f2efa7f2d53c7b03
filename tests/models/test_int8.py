"""A model in 8 bits: close to the one it is made from, the same whole or step by step, and a quarter of its size."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_cases import make_model, make_tokens
from torch import nn

from latchwork.models.int8 import Int8Embedding, Int8Linear, quantize_int8, round_rows
from latchwork.ops.cpu import matvec
from reset_cases import make_reset

pytestmark = pytest.mark.usefixtures("one_thread")

VARIANTS = {
    "default": {},
    "untied": {"tie_weights": False},
    "gated conv": {"conv_type": "gated"},
    "no gate, ffn after": {"output_gate": False, "use_postlayers_ffn": True},
    "degree 2": {"degree": 2, "train_init": True},
    "basic ffn, levels": {"ffn_type": "basic", "levels": 5},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(autouse=True)
def _any_size(monkeypatch):
    """The kernel takes matrices of any size."""
    monkeypatch.setattr(matvec, "SMALLEST", 0)


@pytest.fixture
def calls(monkeypatch):
    """Whether the weight was int8, for each call of the kernel."""
    made, pays = [], matvec.pays

    def record(x, weight, *rest):
        if found := pays(x, weight, *rest):
            made.append(weight.dtype == torch.int8)
        return found

    monkeypatch.setattr(matvec, "pays", record)
    return made


def make_float_model(vocab_size=11, **changes):
    return make_model(vocab_size, dtype=torch.float32, **{"d_model": 24, "d_state": 16, **changes})


def dequantised(model, made):
    """A float model with the weights that `made` stands for."""
    twin = copy.deepcopy(model)
    for name, part in made.named_modules():
        if isinstance(part, Int8Linear):
            target = twin.get_submodule(name.replace("embedding.rows", "embedding").removesuffix(".both"))
            with torch.no_grad():
                target.weight.copy_(part.weight * part.scale)
    return twin


# ---- Rounding.


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(0, 20), st.integers(1, 50)),
    exponent=st.integers(-44, 37),
)
def test_a_weight_is_rounded_by_at_most_half_a_step(seed, shape, exponent):
    torch.manual_seed(seed)
    weight = torch.randn(shape) * 10.0**exponent
    whole, scale = round_rows(weight)
    assert (whole.dtype, whole.shape, scale.shape) == (torch.int8, weight.shape, (shape[0], 1))
    assert (whole.int().abs() <= 127).all()
    error = (whole.double() * scale.double() - weight.double()).abs()
    assert (error <= scale.double() * (0.5 + 1e-4)).all()


def test_the_largest_of_a_row_is_127_steps_and_zeros_stay_zeros():
    whole, scale = round_rows(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.001, 0.0], [0.0, 0.0, 0.0]]))
    assert whole.tolist() == [[64, -127, 32], [0, 127, 0], [0, 0, 0]]
    torch.testing.assert_close(scale[:2], torch.tensor([[2 / 127], [0.001 / 127]]))
    assert (whole[2] * scale[2] == 0).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("vectors", [1, 4, 5])
def test_an_int8_linear_map_is_that_of_its_rounded_weight(vectors, bias, calls):
    float_map = nn.Linear(33, 17, bias=bias)
    whole_map = Int8Linear(float_map.weight, float_map.bias)
    x = torch.randn(2, vectors, 33)[:1]
    expected = nn.functional.linear(x, whole_map.weight * whole_map.scale, float_map.bias)
    torch.testing.assert_close(whole_map(x), expected.detach())
    assert bool(calls) == (vectors <= 4)
    assert not list(whole_map.parameters())


# ---- Models.


@each_variant
def test_an_int8_model_is_the_float_model_of_its_rounded_weights(variant, calls):
    model = make_float_model(**VARIANTS[variant])
    made, tokens = quantize_int8(model), make_tokens(3, 9, 11)
    twin = dequantised(model, made)
    with torch.no_grad():
        for length in (1, 9):
            (logits, state), (expected, other) = made(tokens[:, :length]), twin(tokens[:, :length])
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(state.x, other.x, rtol=1e-4, atol=1e-4)
    assert any(calls)


@each_variant
@pytest.mark.parametrize("reset", ["never", "random"])
def test_whole_and_step_by_step_are_the_same(reset, variant, calls):
    made = quantize_int8(make_float_model(**VARIANTS[variant]))
    tokens, begins = make_tokens(2, 12, 11), make_reset(reset, 2, 12)
    with torch.no_grad():
        expected, last = made(tokens, reset=begins)
        assert not any(calls)
        state, steps = None, []
        for t in range(12):
            now = slice(t, t + 1)
            logits, state = made(tokens[:, now], state, reset=None if begins is None else begins[:, now])
            steps.append(logits)
        assert any(calls)
        pieces, _ = made(tokens, reset=begins, chunk_size=5)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(pieces, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(state.x, last.x, rtol=1e-4, atol=1e-4)


def test_many_tokens_of_a_small_vocabulary_are_the_same_in_pieces():
    made, tokens = quantize_int8(make_float_model(3)), make_tokens(2, 300, 3)
    with torch.no_grad():
        expected, _ = made(tokens)
        pieces = torch.cat([logits for logits, _ in made.stream(tokens, chunk_size=70)], 1)
    torch.testing.assert_close(pieces, expected, rtol=1e-4, atol=1e-4)


@each_variant
def test_generation_takes_the_best_token_of_the_logits(variant, calls):
    made = quantize_int8(make_float_model(**VARIANTS[variant]))
    prompt = make_tokens(2, 3, 11)
    found = made.generate(prompt, 6, temperature=0)
    assert found.shape == (2, 6)
    with torch.no_grad():
        logits, _ = made(torch.cat((prompt, found), 1))
    chosen = logits[:, 2:-1].gather(2, found.unsqueeze(2)).squeeze(2)
    assert (chosen >= logits[:, 2:-1].amax(2) - 1e-4).all()
    assert any(calls)


def bytes_of(model):
    seen = {each.data_ptr(): each for each in (*model.parameters(), *model.buffers())}
    return sum(each.numel() * each.element_size() for each in seen.values())


@pytest.mark.parametrize("variant", ["default", "untied", "degree 2"])
def test_the_weights_take_a_quarter_of_the_memory(variant):
    model = make_float_model(500, **{**VARIANTS[variant], "d_model": 128, "d_state": 64})
    share = bytes_of(quantize_int8(model)) / bytes_of(model)
    assert 0.25 < share < 0.29


@each_variant
def test_every_matrix_is_int8_and_all_else_as_it_was(variant):
    model = make_float_model(**VARIANTS[variant])
    made = quantize_int8(model)
    for name, value in (*made.named_parameters(), *made.named_buffers()):
        assert value.dtype == (torch.int8 if name.endswith("weight") and value.dim() == 2 else torch.float32), name
        assert value.dim() < 2 or name.endswith(("weight", "scale")), name
    before = dict(model.named_parameters())
    for name, value in made.named_parameters():
        assert torch.equal(value, before[name])
        assert not value.requires_grad


@pytest.mark.parametrize("tie_weights", [False, True])
def test_head_and_embedding_share_their_rows_where_the_model_ties_them(tie_weights):
    made = quantize_int8(make_float_model(tie_weights=tie_weights))
    assert isinstance(made.embedding, Int8Embedding)
    assert (made.embedding.rows is made.head) == tie_weights
    rows = made.embedding(torch.arange(11))
    assert torch.equal(rows, made.embedding.rows.weight * made.embedding.rows.scale)


@each_variant
def test_the_model_it_is_made_from_does_not_change(variant):
    model = make_float_model(**VARIANTS[variant]).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = quantize_int8(model)
    assert model.training
    assert not made.training
    assert all(each.requires_grad for each in model.parameters())
    assert before.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    with torch.no_grad():
        made.head.scale.mul_(2)
        made.backbone.layers[0].norm_ffn.weight.mul_(2)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_weights_that_are_not_float32_are_an_error(dtype):
    with pytest.raises(ValueError, match=r"model must have float32 weights; call model.float\(\) first"):
        quantize_int8(make_model(dtype=dtype))


def test_the_loss_of_an_int8_model_is_that_of_its_logits():
    made, tokens = quantize_int8(make_float_model()), make_tokens(3, 20, 11)
    with torch.no_grad():
        logits, _ = made(tokens)
        expected = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        torch.testing.assert_close(made.loss(tokens, tokens)[0], expected)


def test_saving_an_int8_model_is_an_error(tmp_path):
    with pytest.raises((ValueError, TypeError, NotImplementedError)):
        quantize_int8(make_float_model()).save(tmp_path)


def test_an_int8_model_is_not_made_from_another():
    with pytest.raises(ValueError, match="float32"):
        quantize_int8(quantize_int8(make_float_model()))
