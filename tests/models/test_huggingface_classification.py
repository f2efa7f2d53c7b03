"""The classifiers for transformers: padding is not seen, weights of a language model load, Trainer trains them."""

import runpy
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

transformers = pytest.importorskip("transformers")
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification  # noqa: E402

from latchwork.models.huggingface import (  # noqa: E402
    MinMaxRNCForCausalLM,
    MinMaxRNCForSequenceClassification,
    MinMaxRNCForTokenClassification,
    MinMaxRNCHFConfig,
)

CLASSES = [MinMaxRNCForSequenceClassification, MinMaxRNCForTokenClassification]
EXAMPLE = Path(__file__).parents[2] / "examples" / "classify_sequences.py"


def config(**values):
    shape = {"d_model": 8, "n_layers": 2, "d_state": 6, "s_r_init": "spread", "num_labels": 3}
    return MinMaxRNCHFConfig(vocab_size=11, **{**shape, **values})


def padded(left):
    """Rows of 5, 2 and 3 tokens, padded at one side, and the mask."""
    ids, mask = torch.randint(11, (3, 5)), torch.zeros(3, 5, dtype=torch.long)
    for row, length in enumerate([5, 2, 3]):
        mask[row, slice(5 - length, None) if left else slice(length)] = 1
    return ids, mask


@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_a_padded_row_gives_what_it_gives_alone(left):
    ids, mask = padded(left)
    whole, each = (kind(config()).eval() for kind in CLASSES)
    answers, tokens = whole(ids, attention_mask=mask).logits, each(ids, attention_mask=mask).logits
    for row in range(3):
        real = mask[row].bool()
        alone = ids[row, real][None]
        torch.testing.assert_close(answers[row], whole(alone).logits[0])
        torch.testing.assert_close(tokens[row, real], each(alone).logits[0])
        vectors = whole.get_input_embeddings()(alone)
        torch.testing.assert_close(whole(inputs_embeds=vectors).logits[0], answers[row])


def test_the_losses_are_those_of_torch():
    ids, mask = padded(False)
    whole, each = (kind(config()).eval() for kind in CLASSES)
    labels = torch.tensor([2, 0, 1])
    output = whole(ids, attention_mask=mask, labels=labels)
    torch.testing.assert_close(output.loss, F.cross_entropy(output.logits, labels))
    numbers = MinMaxRNCForSequenceClassification(config(num_labels=1))
    output = numbers(ids, labels=labels.float())
    torch.testing.assert_close(output.loss, F.mse_loss(output.logits.squeeze(-1), labels.float()))
    labels = torch.randint(3, (3, 5)).masked_fill(mask == 0, -100)
    output = each(ids, attention_mask=mask, labels=labels)
    torch.testing.assert_close(output.loss, F.cross_entropy(output.logits.flatten(0, 1), labels.flatten()))
    assert each(ids, labels=torch.full((3, 5), -100)).loss == 0
    assert each(ids, labels=labels, return_dict=False)[0] == each(ids, labels=labels).loss


@pytest.mark.parametrize("kind", CLASSES)
def test_what_is_saved_loads_again_by_the_auto_classes(kind, tmp_path):
    model, ids = kind(config()).eval(), torch.randint(11, (2, 4))
    model.save_pretrained(tmp_path)
    auto = {CLASSES[0]: AutoModelForSequenceClassification, CLASSES[1]: AutoModelForTokenClassification}[kind]
    again = auto.from_pretrained(tmp_path)
    assert type(again) is kind
    assert again.config.num_labels == 3
    assert torch.equal(again(ids).logits, model(ids).logits)


@pytest.mark.parametrize("tie_weights", [False, True])
def test_the_weights_of_a_language_model_are_taken_and_the_head_is_new(tie_weights, tmp_path):
    lm = MinMaxRNCForCausalLM(config(tie_weights=tie_weights))
    lm.save_pretrained(tmp_path)
    model = MinMaxRNCForSequenceClassification.from_pretrained(tmp_path, num_labels=2)
    for name, value in model.lm.state_dict().items():
        assert torch.equal(value, lm.lm.state_dict()[name])
    assert model.score.weight.shape == (2, 8)
    assert 0 < model.score.weight.std() < 1
    assert not model.score.bias.any()


def test_wrong_labels_are_named():
    ids = torch.randint(11, (2, 4))
    with pytest.raises(ValueError, match="labels must have B = 2 rows"):
        MinMaxRNCForSequenceClassification(config())(ids, labels=torch.zeros(3).long())
    with pytest.raises(ValueError, match=r"labels must be \(B, T\) = \(2, 4\)"):
        MinMaxRNCForTokenClassification(config())(ids, labels=torch.zeros(2).long())
    with pytest.raises(ValueError, match="give either input_ids or inputs_embeds"):
        MinMaxRNCForTokenClassification(config())()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_example_trains_with_trainer():
    assert 0 < runpy.run_path(str(EXAMPLE))["main"](256) < 1
