"""The numbers of trainable parameters are the paper's, to the last one."""

import pytest
import torch

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig

# d_state, output gate, convolution: two layers with 20 tokens, and each further layer.
TABLE = [
    (40, False, "basic", 121_952, 59_986),
    (40, True, "basic", 129_232, 63_626),
    (40, False, "gated", 89_552, 43_786),
    (40, True, "gated", 96_832, 47_426),
    (90, False, "basic", 149_152, 73_586),
    (90, True, "basic", 165_532, 81_776),
    (90, False, "gated", 116_752, 57_386),
    (90, True, "gated", 133_132, 65_576),
]


def count(vocab_size, config):
    with torch.device("meta"):
        return MinMaxRNC_LM(vocab_size, config).parameter_count()


@pytest.mark.parametrize(("d_state", "output_gate", "conv_type", "total", "per_layer"), TABLE)
def test_the_models_of_the_synthetic_tasks_have_the_counts_of_the_paper(
    d_state, output_gate, conv_type, total, per_layer
):
    options = {"d_state": d_state, "output_gate": output_gate, "conv_type": conv_type}
    assert MinMaxRNC_LM(20, MinMaxRNCLMConfig.small(**options)).parameter_count() == total
    for n_layers in range(1, 7):
        vocab_size = 10 * n_layers
        expected = 90 * vocab_size + 180 + n_layers * per_layer
        assert count(vocab_size, MinMaxRNCLMConfig.small(n_layers=n_layers, **options)) == expected


def test_the_language_model_has_the_count_of_the_paper():
    assert count(50_257, MinMaxRNCLMConfig.large()) == 112_465_992
    assert count(50_257, MinMaxRNCLMConfig.large(output_gate=True, conv_type="gated")) == 112_465_992


def test_the_medium_model_has_42_million():
    assert 42_000_000 < count(50_257, MinMaxRNCLMConfig.medium()) < 42_500_000


def test_a_learned_start_an_untied_head_and_an_ffn_after_the_layers_add_their_own():
    base = count(20, MinMaxRNCLMConfig.small())
    assert count(20, MinMaxRNCLMConfig.small(train_init=True)) == base + 2 * 40
    assert count(20, MinMaxRNCLMConfig.small(tie_weights=False)) == base + 20 * 90
    assert count(20, MinMaxRNCLMConfig.small(use_postlayers_ffn=True)) == base + 236 * 91 + 90 * 119 + 180
    assert count(20, MinMaxRNCLMConfig.small(ffn_type="basic")) == base - 2 * 118 * 91
    assert count(20, MinMaxRNCLMConfig.small(norm="none", postlayers_norm="none")) == base - 7 * 180
    assert count(20, MinMaxRNCLMConfig.small(norm="rmsnorm")) == base - 6 * 90
    assert count(20, MinMaxRNCLMConfig.small(degree=4)) == base + 2 * 3 * 40 * 91
    assert count(20, MinMaxRNCLMConfig.small(levels=3)) == base


def test_what_is_frozen_is_not_counted():
    model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small())
    model.embedding.weight.requires_grad_(False)
    assert model.parameter_count() == 129_232 - 1800
