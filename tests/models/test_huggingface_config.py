"""The configuration that transformers reads is ours under its own names."""

import json

import pytest
import torch

from latchwork.models import MinMaxRNCConfig, MinMaxRNCLMConfig

pytest.importorskip("transformers")

from huggingface_cases import make_model
from transformers import AutoModelForCausalLM

from latchwork.models.huggingface import MinMaxRNCForCausalLM, MinMaxRNCHFConfig, to_huggingface

FIELDS = {"vocab_size": 8, "d_model": 12, "n_layers": 2, "d_state": 10}


@pytest.fixture
def model():
    return to_huggingface(make_model())


def test_it_carries_our_configuration_there_and_back():
    backbone = MinMaxRNCConfig(d_model=12, n_layers=2, d_state=10, levels=4, norm="rmsnorm")
    ours = MinMaxRNCLMConfig(backbone=backbone, head_dropout=0.2, tie_weights=False)
    theirs = MinMaxRNCHFConfig.from_latchwork(8, ours)
    assert theirs.to_latchwork() == ours
    assert MinMaxRNCHFConfig(**json.loads(theirs.to_json_string())).to_dict() == theirs.to_dict()


def test_what_the_language_model_says_stands_in_for_its_backbone():
    backbone = MinMaxRNCConfig(d_model=12, n_layers=2, d_state=10)
    ours = MinMaxRNCLMConfig(backbone=backbone, conv_type="gated", output_gate=False)
    assert MinMaxRNCHFConfig.from_latchwork(8, ours).to_latchwork().backbone == ours.resolved_backbone


def test_the_names_that_tools_ask_for_are_other_names_of_ours():
    config = MinMaxRNCHFConfig(vocab_size=8, hidden_size=12, num_hidden_layers=2, d_state=10, tie_word_embeddings=False)
    assert (config.d_model, config.n_layers, config.tie_weights) == (12, 2, False)
    assert (config.hidden_size, config.num_hidden_layers, config.tie_word_embeddings) == (12, 2, False)


def test_two_that_differ_in_our_fields_are_not_equal():
    assert MinMaxRNCHFConfig(**FIELDS) == MinMaxRNCHFConfig(**FIELDS)
    assert MinMaxRNCHFConfig(**FIELDS) != MinMaxRNCHFConfig(**FIELDS, degree=2)


def test_keys_of_transformers_may_be_given():
    config = MinMaxRNCHFConfig(**FIELDS, eos_token_id=3, pad_token_id=0, dtype="bfloat16", num_labels=4)
    assert (config.eos_token_id, config.dtype, config.num_labels) == (3, torch.bfloat16, 4)
    assert MinMaxRNCForCausalLM(config).generation_config.eos_token_id == 3


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"conv_type": "bsaic"}, "conv_type must be one of 'basic', 'gated'; got 'bsaic'"),
        ({"conv_typ": "basic"}, "MinMaxRNCHFConfig has no field 'conv_typ'; did you mean 'conv_type'? It has "),
        ({"temperature": 1.0}, "MinMaxRNCHFConfig has no field 'temperature'. It has vocab_size, d_model"),
        ({"degree": 3}, "d_state must be a multiple of degree = 3; got 10"),
        ({"vocab_size": 0}, "vocab_size must be an integer from 1 to 2,147,483,648; got 0"),
        ({"hidden_size": 12}, "hidden_size is another name of d_model: give one of them"),
    ],
)
def test_a_bad_one_is_an_error_that_says_what_there_is(change, error):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared as it is
        MinMaxRNCHFConfig(**{**FIELDS, **change})
    assert str(caught.value).startswith(error)


def test_a_bad_one_is_found_on_loading_too(model, tmp_path):
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "ffn_tpye": "gated"}))
    with pytest.raises(ValueError, match="no field 'ffn_tpye'; did you mean 'ffn_type'"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_one_changed_afterwards_is_checked_when_a_model_is_made(model, tmp_path):
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="norm must be one of"):
        AutoModelForCausalLM.from_pretrained(tmp_path, norm="batchnorm")
