"""Parametrizations and LoRA train a float32 model on the CPU, and give what its plain parts give."""

import copy

import pytest
import torch
from model_cases import make_model, make_tokens
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from latchwork import use_backend
from seen_operations import seen_operations

VOCABULARY, B, T = 5, 3, 40  # enough rows for the fused layer, and for pairs of tokens
TARGETS = ["projection", "output", "up", "down"]


def train(model, tokens, backend, steps=3):
    """Losses, and the parameters after some steps of those that may learn."""
    optimiser = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.3)
    losses = []
    with use_backend(backend):
        for _ in range(steps):
            logits, _ = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
    return torch.stack(losses), {name: each.detach() for name, each in model.named_parameters()}


def assert_trains_as_its_plain_parts(make):
    tokens, models = make_tokens(B, T, VOCABULARY), (make(), make())
    losses, found = train(models[0], tokens, "auto")
    expected_losses, expected = train(models[1], tokens, "torch")
    assert losses[-1] < losses[0]
    torch.testing.assert_close(losses, expected_losses, rtol=1e-4, atol=1e-5)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    return models[0]


def parametrize(model, wrap):
    for name, part in list(model.named_modules()):
        if name.rsplit(".", 1)[-1] in TARGETS:
            wrap(part)
    return model


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.orthogonal])
def test_a_parametrized_model_trains_as_its_plain_parts(wrap):
    start = parametrize(make_model(VOCABULARY, dtype=torch.float32).train(), wrap)
    assert_trains_as_its_plain_parts(lambda: copy.deepcopy(start))


def test_a_model_without_its_parametrizations_is_fast_again_and_the_same():
    model, tokens = make_model(VOCABULARY, dtype=torch.float32), make_tokens(B, T, VOCABULARY)
    with torch.no_grad(), seen_operations() as seen:
        expected, _ = parametrize(model, parametrizations.weight_norm)(tokens)
    assert seen == []
    parametrize(model, lambda part: torch.nn.utils.parametrize.remove_parametrizations(part, "weight"))
    with torch.no_grad(), seen_operations() as seen:
        logits, _ = model(tokens)
    assert seen
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def with_lora(model):
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=TARGETS, init_lora_weights=False))


def test_lora_trains_its_own_weights_alone_as_on_the_plain_parts_and_is_merged():
    start, tokens = make_model(VOCABULARY, dtype=torch.float32).train(), make_tokens(B, T, VOCABULARY)
    model = assert_trains_as_its_plain_parts(lambda: with_lora(copy.deepcopy(start)))
    learnt = {name for name, each in model.named_parameters() if each.requires_grad}
    assert len(learnt) == 2 * 2 * len(TARGETS)  # A and B in each of two layers
    assert all("lora" in name for name in learnt)
    with torch.no_grad():
        expected, _ = model(tokens)
        merged = model.merge_and_unload()
        with seen_operations() as seen:
            logits, _ = merged(tokens)
    assert "layer" in seen
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
