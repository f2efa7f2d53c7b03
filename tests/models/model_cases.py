"""Small models with weights that leave nothing at zero, or with weights whose every product is exact."""

from contextlib import contextmanager
from unittest import mock

import torch

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig, State
from latchwork.models import token_pairs

DEGREES = [1, 2, 3]
PAIRS = "latchwork.models.token_pairs.first_drives"

# What a model can be made of, beyond the defaults: each option at least once, degrees and levels together.
VARIANTS = {
    "default": {},
    "gated conv, basic ffn": {"conv_type": "gated", "ffn_type": "basic", "ffn_act_fn": "gelu"},
    "no gate, rmsnorm, x0": {"output_gate": False, "norm": "rmsnorm", "postlayers_norm": "rmsnorm", "train_init": True},
    "no norm, ffn after": {"norm": "none", "postlayers_norm": "none", "use_postlayers_ffn": True},
    "untied": {"tie_weights": False, "use_postlayers_ffn": True, "s_r_init": "asymmetric"},
    "degree 2": {"degree": 2, "train_init": True},
    "degree 3, gated conv": {"degree": 3, "conv_type": "gated"},
    "levels": {"levels": 5, "s_r_init": "kaiming"},
    "degree 2, levels": {"degree": 2, "levels": 4, "output_gate": False},
    "degree 3, levels": {"degree": 3, "levels": 7, "norm": "none"},
    "selection": {"degree": 3, "reset_form": "selection", "train_init": True},
    "transformation": {"degree": 3, "reset_form": "transformation", "train_init": True},
    "extra units": {"extra_units": ((2, 3), (1, 2)), "reset_form": "selection"},
    "extra matrices": {"extra_units": ((1, 3),), "degree": 2, "conv_type": "gated"},
}


def make_config(**changes):
    return MinMaxRNCLMConfig.small(**{"d_model": 6, "d_state": 6, "ffn_dropout": 0.0, **changes})


def make_model(vocab_size=7, *, dtype=torch.float64, **changes):
    """A model in eval mode, each of its parameters moved away from where it starts."""
    model = MinMaxRNC_LM(vocab_size, make_config(**changes))
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            value.add_(torch.randn(value.shape) * 0.3)
    return model.to(dtype).eval()


def make_exact_model(vocab_size=7, *, dtype=torch.float32, **changes):
    """Small integers and halves, no norm, relu, and every sigmoid at 1/2: no operation rounds, so no order matters."""
    fixed = {"norm": "none", "postlayers_norm": "none", "ffn_type": "basic"}
    model = MinMaxRNC_LM(vocab_size, make_config(**{**fixed, **changes}))
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            value.copy_(torch.randint(-1, 2, value.shape) * (torch.rand(value.shape) < 0.6))
        model.embedding.weight.copy_(torch.randint(-4, 5, model.embedding.weight.shape))
        for layer in model.backbone.layers:
            layer.neuron.x0.copy_(torch.randint(-4, 5, layer.neuron.x0.shape) / 4)
            if layer.neuron.output_gate:
                layer.neuron.projection.weight[-layer.neuron.d_state :] = 0
                layer.neuron.projection.bias[-layer.neuron.d_state :] = 0
            if hasattr(layer.conv, "g"):
                layer.conv.g.zero_()
    return model.to(dtype).eval()


EXACT_VARIANTS = {
    "default": {},
    "gated conv": {"conv_type": "gated"},
    "no gate, x0": {"output_gate": False, "train_init": True},
    "ffn after": {"use_postlayers_ffn": True, "tie_weights": False},
    "gated ffn": {"ffn_type": "gated", "dtype": torch.float64},  # its products need more digits than float32 has
    "degree 2": {"degree": 2},
    "degree 3, gated conv": {"degree": 3, "conv_type": "gated"},
    "levels": {"levels": 5},
    "degree 2, levels": {"degree": 2, "levels": 9},
}


def make_tokens(B, T, vocab_size=7):
    return torch.randint(vocab_size, (B, T))


def make_state(model, B):
    """Some state that the model can go on from, neither its first nor on any special value."""
    first = model.initial_state(B)
    return State(*(torch.randn(each.shape).to(each.dtype) for each in first)).detach()


def cut(T, sizes):
    """Slices of the given sizes, repeated, until T steps are through."""
    start, slices = 0, []
    while start < T:
        size = sizes[len(slices) % len(sizes)]
        slices.append(slice(start, start + size))
        start += size
    return slices


def run_in_pieces(model, tokens, slices, state=None, reset=None):
    logits = []
    for piece in slices:
        y, state = model(tokens[:, piece], state, reset=None if reset is None else reset[:, piece])
        logits.append(y)
    return torch.cat(logits, 1), state


def assert_close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def assert_same_run(actual, expected, tolerance=None):
    """(logits, state) equal in every bit, or to a tolerance relative to the largest number, if that is more than 1."""
    for one, other in zip((actual[0], *actual[1]), (expected[0], *expected[1]), strict=True):
        if tolerance is None:
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert torch.equal(one, other)
        else:
            scale = max(1.0, other.abs().max().item() if other.numel() else 1.0)
            assert_close(one / scale, other / scale, tolerance)


def gradients(model, loss, *more):
    """By name, of every parameter and of the tensors `more`; zeros where there is none."""
    named = dict(model.named_parameters()) | {f"more {number}": each for number, each in enumerate(more)}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


def assert_same_gradients(actual, expected, tolerance=None):
    assert actual.keys() == expected.keys()
    for name in actual:
        if tolerance is None:
            assert torch.equal(actual[name], expected[name]), name
        else:
            torch.testing.assert_close(
                actual[name], expected[name], rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
            )


@contextmanager
def without_pairs():
    """The language model computes its first layer at every step, as if no two steps were alike."""
    with mock.patch(PAIRS, return_value=None):
        yield


@contextmanager
def watched_pairs():
    """A list that fills with what `first_drives` gave: None where the first layer computes its own."""
    given, original = [], token_pairs.first_drives

    def watch(*args, **kwargs):
        given.append(original(*args, **kwargs))
        return given[-1]

    with mock.patch(PAIRS, watch):
        yield given


def pairs_were_used(given):
    return any(each is not None for each in given)
