"""Choices further apart, and nothing else changed on the words that were looked at."""

import pytest
import torch
from network_cases import random_network

from latchwork.automata.prune import _states
from latchwork.automata.settle import GAP, separate, settle_choices


@pytest.mark.parametrize("form", ["selection", "transformation"])
@pytest.mark.parametrize("layers", [1, 2])
def test_states_and_answers_stay_and_choices_that_count_are_apart(form, layers):
    shape = {"d_model": 32, "d_state": 6, "degree": 3, "reset_form": form, "levels": None, "output_gate": False}
    model = random_network(0, n_layers=layers, **shape)
    tokens = torch.randint(2, (8, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = [_states(model, tokens, number) for number in range(layers)]
        answers = model(tokens)[0]
        assert settle_choices(model, tokens) > 0
        assert all(torch.equal(_states(model, tokens, number), before[number]) for number in range(layers))
        torch.testing.assert_close(model(tokens)[0], answers)
    assert settle_choices(model, tokens, 0.99 * GAP) == 0


def test_weights_that_tell_rows_apart_by_little_tell_them_apart_by_the_gap():
    x = torch.tensor([[1.0, 0.1, 1.0], [1.0, -0.1, 1.0], [-1.0, 0.0, 1.0]]).double()
    weight = torch.tensor([[0.0, 0.01, 0.0], [0.0, -0.01, 0.0], [-1.0, 0.0, 0.0]]).double()
    found = separate(x, weight, GAP)
    top = (x @ found.T).topk(2, 1)
    assert top.indices[:, 0].tolist() == [0, 1, 2]
    assert (top.values[:, 0] - top.values[:, 1]).min() >= GAP - 1e-6
    assert separate(x, 2000 * weight, GAP) is None


def test_units_that_do_not_choose_are_refused():
    with pytest.raises(TypeError, match="units that choose; got ScalarCell"):
        settle_choices(random_network(0), torch.zeros(1, 2, dtype=torch.int64))
