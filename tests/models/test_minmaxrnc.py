"""Weights of the paper's own package give the paper's own logits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork import MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.models import from_minmaxrnc

minmaxrnc = pytest.importorskip("minmaxrnc")

SIZES = {"d_model": 10, "n_layers": 2, "d_state": 7}


def make_theirs(vocab_size=9, backbone=None, **options):
    """Their model, in eval mode, with no weight at its initial value; and our configuration of the same."""
    backbone = {**SIZES, **(backbone or {})}
    theirs = minmaxrnc.MinMaxRNC_LM(
        vocab_size, minmaxrnc.MinMaxRNCLMConfig(backbone=minmaxrnc.MinMaxRNCConfig(**backbone), **options)
    )
    with torch.no_grad():
        for name, value in theirs.named_parameters():
            if not name.endswith("conv._initial_state"):
                value.add_(torch.randn_like(value) * 0.3)
    over = {"output_gate": True, "conv_type": "basic", "ffn_dropout": 0.1, **options}
    return theirs.eval(), MinMaxRNCLMConfig(backbone=MinMaxRNCConfig(**backbone), **over)


def assert_same_logits(theirs, ours, B, T, vocab_size=9):
    tokens = torch.randint(vocab_size, (B, T))
    with torch.no_grad():
        expected = theirs(tokens, unroll_steps=T)
        logits, _ = ours(tokens)
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(logits / scale, expected / scale, rtol=1e-5, atol=1e-5)
        if T > 2:
            expected = theirs(tokens, unroll_steps=2)
            logits, _ = ours(tokens, chunk_size=2)
            torch.testing.assert_close(logits / scale, expected / scale, rtol=1e-5, atol=1e-5)


backbones = st.fixed_dictionaries(
    {
        "d_model": st.integers(1, 16),
        "n_layers": st.integers(1, 3),
        "d_state": st.integers(1, 12),
        "norm": st.sampled_from(["layernorm", "rmsnorm", "none"]),
        "postlayers_norm": st.sampled_from(["layernorm", "rmsnorm", "none"]),
        "ffn_type": st.sampled_from(["gated", "basic"]),
        "ffn_act_fn": st.sampled_from(["relu", "relu^2", "gelu", "swish", "sigmoid", "selu"]),
        "ffn_init": st.sampled_from(["scaled", "basic"]),
        "train_init": st.booleans(),
        "s_r_init": st.sampled_from(["small_init", "kaiming", "asymmetric"]),
        "conv_init_val": st.sampled_from([0.0, -1.0]),
        "use_postlayers_ffn": st.booleans(),
    }
)


@settings(max_examples=40)
@given(
    backbone=backbones,
    output_gate=st.booleans(),
    conv_type=st.sampled_from(["basic", "gated"]),
    tie_weights=st.booleans(),
    T=st.sampled_from([1, 2, 17, 40]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_of_their_models_gives_their_logits(backbone, output_gate, conv_type, tie_weights, T, seed):
    torch.manual_seed(seed)
    theirs, config = make_theirs(
        backbone=backbone, output_gate=output_gate, conv_type=conv_type, tie_weights=tie_weights
    )
    ours = from_minmaxrnc(theirs.state_dict(), config)
    assert not ours.training
    assert (ours.head.weight is ours.embedding.weight) == tie_weights
    trainable = sum(each.numel() for each in theirs.parameters() if each.requires_grad)
    assert ours.parameter_count() == trainable
    assert_same_logits(theirs, ours, 2, T)


def test_fields_of_their_language_model_override_their_backbone_and_ours_need_not():
    theirs, _ = make_theirs(backbone={"output_gate": False, "conv_type": "gated"})
    config = MinMaxRNCLMConfig(backbone=MinMaxRNCConfig(**SIZES, output_gate=True, conv_type="basic"))
    assert_same_logits(theirs, from_minmaxrnc(theirs.state_dict(), config), 2, 9)


def test_their_weights_are_copied():
    theirs, config = make_theirs()
    ours = from_minmaxrnc(theirs.state_dict(), config)
    before = theirs.token_emb.weight.clone()
    with torch.no_grad():
        for each in ours.parameters():
            each.zero_()
    assert torch.equal(theirs.token_emb.weight, before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_gate": False}, r"it has layers.0.neuron.o_g.bias, .*which the model does not"),
        ({"conv_type": "gated"}, r"it lacks layers.0.conv.g"),
        ({"n_layers": 3}, r"it lacks layers.2."),
        ({"n_layers": 1}, r"it has layers.1..*, which the model does not"),
        ({"d_state": 8}, r"must be \(8,\); got \(7,\)"),
        ({"d_model": 11}, r"token_emb.weight must be \(9, 11\); got \(9, 10\)"),
        ({"ffn_type": "basic"}, r"layers.0.ffn.proj_up.weight must be \(14, 10\); got \(28, 10\)"),
        ({"norm": "none"}, r"it has layers.0.norm_conv.bias"),
        ({"norm": "rmsnorm"}, r"it has layers.0.norm_conv.bias"),
        ({"postlayers_norm": "none"}, r"it has postlayers_norm.bias"),
        ({"use_postlayers_ffn": True}, r"it lacks postlayers_ffn"),
        ({"levels": 3}, "levels"),
        ({"degree": 7}, r"config.backbone.degree must be 1, as all of minmaxrnc is; got 7"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_an_error_that_says_where(changes, message):
    theirs, _ = make_theirs()
    with pytest.raises(ValueError, match=message):
        from_minmaxrnc(theirs.state_dict(), MinMaxRNCLMConfig(backbone=MinMaxRNCConfig(**{**SIZES, **changes})))


def test_an_untied_head_needs_an_untied_configuration():
    theirs, config = make_theirs(tie_weights=False)
    tied = MinMaxRNCLMConfig.from_dict({**config.to_dict(), "tie_weights": True})
    with pytest.raises(ValueError, match=r"tie_weights must be False: lm_head.weight differs from token_emb.weight"):
        from_minmaxrnc(theirs.state_dict(), tied)


def test_a_foreign_state_dict_is_an_error():
    config = MinMaxRNCLMConfig(backbone=MinMaxRNCConfig(**SIZES))
    for foreign in ({}, {"weight": torch.zeros(2)}, torch.nn.Linear(2, 2).state_dict()):
        with pytest.raises(ValueError, match=r"is not that of a minmaxrnc language model: it has no token_emb.weight"):
            from_minmaxrnc(foreign, config)


def test_one_tensor_too_many_or_too_few_is_an_error_that_names_it():
    theirs, config = make_theirs()
    weights = dict(theirs.state_dict())
    with pytest.raises(ValueError, match=r"it has extra.weight, which the model does not"):
        from_minmaxrnc({**weights, "extra.weight": torch.zeros(1)}, config)
    del weights["layers.1.neuron.s.weight"]
    with pytest.raises(ValueError, match=r"it lacks layers.1.neuron.s.weight, which .*projection.weight is made from"):
        from_minmaxrnc(weights, config)


def test_a_convolution_that_does_not_start_at_zero_is_an_error():
    theirs, config = make_theirs()
    weights = dict(theirs.state_dict())
    weights["layers.1.conv._initial_state"] = torch.ones(10)
    with pytest.raises(ValueError, match=r"layers.1.conv._initial_state'\] must be zero"):
        from_minmaxrnc(weights, config)
