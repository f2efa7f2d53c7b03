"""A network with banks is a plain network with tied weights."""

import pytest
import torch
from model_cases import make_exact_model, make_model, make_tokens

from latchwork.models import expand_bank

OPTIONS = [
    {"bank": 3},
    {"bank": 2, "output_gate": False, "train_init": True},
    {"bank": 2, "groups": ((2, 3), (1, 2))},
    {"bank": 6, "groups": ((1, 2),), "output_gate": False},
    {},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_expanded_network_is_the_same_function(options):
    model = make_model(**options)
    plain = expand_bank(model)
    assert (plain.config.backbone.bank, plain.config.backbone.d_state) == (1, model.config.backbone.d_state)
    tokens = make_tokens(2, 9)
    (logits, state), (expected, expected_state) = plain(tokens), model(tokens)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(state.x, expected_state.x)
    torch.testing.assert_close(plain(tokens, expected_state)[0], model(tokens, expected_state)[0])  # a state fits both


def test_where_nothing_rounds_the_two_are_equal():
    model, tokens = make_exact_model(bank=3), make_tokens(3, 20)
    assert torch.equal(expand_bank(model)(tokens)[0], model(tokens)[0])


def test_the_expanded_network_has_the_mode_and_type_of_the_other():
    assert expand_bank(make_model(bank=2).train()).training
    assert expand_bank(make_model(bank=2, dtype=torch.bfloat16)).head.weight.dtype == torch.bfloat16


def test_a_bank_has_few_parameters_and_its_expansion_many():
    model = make_model(bank=6)
    own, plain = (sum(each.numel() for each in one.backbone.parameters()) for one in (model, expand_bank(model)))
    # of each of two layers five more pairs: three rows of 6 + 1 and a column of 6, for 3 * 6 numbers of the bank
    assert plain - own == 2 * (5 * (3 * 7 + 6) - 3 * 6)
