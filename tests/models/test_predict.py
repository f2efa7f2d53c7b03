"""`predict` gives the best token of `forward`'s logits, whichever way it is computed."""

import pytest
import torch
from model_cases import make_model, make_state, make_tokens

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig, use_backend
from reset_cases import make_reset
from seen_operations import seen_operations


def expected_of(model, tokens, *arguments, **options):
    with torch.no_grad():
        logits, state = model(tokens, *arguments, **options)
    return logits.argmax(-1), state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("postlayers_norm", ["layernorm", "rmsnorm", "none"])
@pytest.mark.parametrize("chunk_size", [None, 1, 7, 100])
def test_the_answers_and_the_state_are_those_of_forward(dtype, postlayers_norm, chunk_size):
    model = make_model(dtype=dtype, postlayers_norm=postlayers_norm).eval()
    tokens, state, reset = make_tokens(3, 50), make_state(model, 3), make_reset("random", 3, 50)
    answers, after = model.predict(tokens, state, reset=reset, chunk_size=chunk_size)
    expected, wanted = expected_of(model, tokens, state, reset=reset, chunk_size=chunk_size)
    assert torch.equal(answers, expected)
    for one, other in zip(after, wanted, strict=True):
        assert torch.equal(one, other)


def test_one_operation_takes_the_place_of_norm_head_and_choice():
    model, tokens = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval(), torch.randint(20, (2, 300))
    with seen_operations(every=True) as seen:
        model.predict(tokens)
    assert seen == ["layer", "layer", "linear_best"]


@pytest.mark.parametrize("part", ["backbone", "backbone.norm_postlayers", "head_dropout", "head"])
def test_a_hook_on_a_part_is_called_and_changes_the_answers(part):
    model, tokens = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval(), torch.randint(20, (2, 50))
    calls = []

    def hook(module, inputs, output):
        calls.append(module)
        y = output[0] if isinstance(output, tuple) else output
        y = -y if part == "head" else torch.zeros_like(y)
        return (y, output[1]) if isinstance(output, tuple) else y

    before = model.predict(tokens)[0]
    model.get_submodule(part).register_forward_hook(hook)
    after = model.predict(tokens)[0]
    assert calls
    assert not torch.equal(before, after)
    assert torch.equal(after, expected_of(model, tokens)[0])


def test_the_dropout_of_the_head_is_drawn_in_training():
    model, tokens = make_model(dtype=torch.float32, head_dropout=0.5).train(), make_tokens(2, 40)
    torch.manual_seed(3)
    found = model.predict(tokens)[0]
    torch.manual_seed(3)
    assert torch.equal(found, expected_of(model, tokens)[0])
    assert not torch.equal(found, model.eval().predict(tokens)[0])


@pytest.mark.parametrize("backend", ["reference", "torch", "cpu"])
def test_each_backend_gives_the_same_answers(backend):
    model, tokens = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval(), torch.randint(20, (2, 60))
    with use_backend(backend):
        assert torch.equal(model.predict(tokens)[0], expected_of(model, tokens)[0])


def test_a_nan_leaves_no_answer():
    model, tokens = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval(), torch.randint(20, (1, 40))
    with torch.no_grad():
        model.head.weight[3, 5] = torch.nan
    assert (model.predict(tokens)[0] == -1).all()


def test_what_forward_refuses_is_refused():
    model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).eval()
    with pytest.raises(ValueError, match=r"tokens must be int64 or int32 \(B, T\); got torch.float32 \(2, 3\)"):
        model.predict(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="chunk_size must be at least 1, or None; got 0"):
        model.predict(torch.zeros(2, 3).long(), chunk_size=0)
