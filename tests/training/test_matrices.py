"""Muon within a run: it steps the matrices inside, and all else exactly as AdamW."""

import pytest
import torch
from torch import nn

from latchwork.baselines.registry import ModelConfig, make_model
from latchwork.training.config import OptimizerConfig
from latchwork.training.optimizer import make_optimizer

MUON = OptimizerConfig(learning_rate=1e-2, name="muon", matrix_rate=2.0, weight_decay=((0, 0.1), (4, 0.0)))


def test_what_is_not_a_matrix_inside_steps_as_adamw_does_bit_for_bit():
    plain = OptimizerConfig(learning_rate=1e-2)
    outer = {"embedding.weight", "head.weight"}
    models = []
    for config in (MUON, plain):
        torch.manual_seed(0)
        model = make_model(ModelConfig(options={"d_model": 8, "d_state": 6, "n_layers": 1, "ffn_dropout": 0.0}), 5)
        optimizer = make_optimizer(model, config)
        for step in range(3):
            torch.manual_seed(step)
            for each in model.parameters():
                each.grad = torch.randn_like(each)
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.1 if group["decays"] else 0.0
            optimizer.step()
        models.append(dict(model.named_parameters()))
    for each, value in models[0].items():
        matrix = value.dim() == 2 and each not in outer
        assert torch.equal(value, models[1][each]) != matrix, each


@pytest.mark.parametrize(
    ("kind", "sizes", "expected"),
    [
        ("minmax", {"n_layers": 1, "d_model": 8, "d_state": 6}, 5),
        ("transformer", {"n_layers": 1, "width": 8, "heads": 2}, 4),
        ("lstm", {"n_layers": 1, "width": 8}, 2),
        ("gru", {"n_layers": 2, "width": 8}, 4),
        ("mamba", {"n_layers": 1, "width": 8}, 4),
    ],
)
def test_the_matrices_between_embedding_and_head_step_in_their_own_way(kind, sizes, expected):
    model = make_model(ModelConfig(kind=kind, options=sizes), 50)
    groups = make_optimizer(model, MUON).param_groups
    chosen = [each for group in groups if "momentum" in group for each in group["params"]]
    assert len(chosen) == expected
    assert all(each.dim() == 2 and 50 not in each.shape for each in chosen)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_a_name_that_merely_holds_the_letters_of_embedding_is_a_matrix_inside():
    parts = {name: nn.Linear(4, 4) for name in ("members", "embed_tokens", "tok_emb", "embedding", "wte", "remembered")}
    groups = make_optimizer(nn.ModuleDict(parts), MUON).param_groups
    inside = {id(each) for group in groups if "momentum" in group for each in group["params"]}
    assert {name for name, part in parts.items() if id(part.weight) in inside} == {"members", "remembered"}


@pytest.mark.parametrize("changes", [{"name": "sgd"}, {"momentum": 1.0}, {"matrix_rate": 0.0}])
def test_bad_values_are_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        OptimizerConfig(learning_rate=1e-3, **changes)
