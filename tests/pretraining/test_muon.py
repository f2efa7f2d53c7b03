"""Muon: its matrices step orthogonally, all else exactly as AdamW; a run that is cut off is gone on with."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pretraining_cases import make_corpus, tiny, without_time
from safetensors.torch import load_file

from latchwork.pretraining.config import ModelConfig, OptimizerConfig
from latchwork.pretraining.model import make_model
from latchwork.pretraining.muon import Muon, by_product, by_rounds, orthogonalise
from latchwork.pretraining.optimizer import make_optimizer
from latchwork.pretraining.run import pretrain

MUON = OptimizerConfig(learning_rate=1e-2, name="muon", matrix_rate=2.0, weight_decay=((0, 0.1), (4, 0.0)))


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32))
def test_it_keeps_the_singular_vectors_and_brings_the_values_near_one(rows, columns, scale, seed):
    draw = torch.Generator().manual_seed(seed)
    u, _, v = torch.linalg.svd(torch.randn(rows, columns, generator=draw), full_matrices=False)
    values = 0.1 + 0.9 * torch.rand(min(rows, columns), generator=draw)
    found = orthogonalise(scale * u @ values.diag() @ v)
    inside = u.T @ found @ v.T
    assert ((inside.diagonal() > 0.6) & (inside.diagonal() < 1.3)).all()
    torch.testing.assert_close(inside, inside.diagonal().diag(), atol=1e-3, rtol=0)
    torch.testing.assert_close(u @ inside @ v, found, atol=1e-3, rtol=0)


@given(rows=st.integers(1, 30), times=st.integers(2, 5), seed=st.integers(0, 2**32))
def test_the_factors_multiplied_first_give_the_same(rows, times, seed):
    x = torch.randn(rows, times * rows, generator=torch.Generator().manual_seed(seed))
    x = x / x.norm()
    torch.testing.assert_close(by_product(x), by_rounds(x), atol=1e-3, rtol=0)


def test_of_nothing_it_makes_nothing():
    assert torch.equal(orthogonalise(torch.zeros(3, 5)), torch.zeros(3, 5))


def test_it_steps_as_torchs_own_muon_but_for_bfloat16():
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(24, 40)) for _ in range(2))
    one = Muon([{"params": [ours], "momentum": 0.95, "rate": 1.0, "decays": True}], lr=0.02, weight_decay=0.1)
    other = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        ours.grad = torch.randn(24, 40)
        theirs.grad = ours.grad.clone()
        one.step()
        other.step()
    moved = (1 - theirs).norm()
    assert (ours - theirs).norm() < 0.02 * moved


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
    for name, each in models[0].items():
        matrix = each.dim() == 2 and name not in outer
        assert torch.equal(each, models[1][name]) != matrix, name


@pytest.mark.parametrize(
    ("kind", "sizes", "expected"),
    [
        ("transformer", {"n_layers": 1, "width": 8, "heads": 2}, 4),
        ("lstm", {"n_layers": 1, "width": 8}, 2),
        ("gru", {"n_layers": 2, "width": 8}, 4),
        ("mamba", {"n_layers": 1, "width": 8}, 4),
    ],
)
def test_of_a_baseline_the_matrices_between_embedding_and_head_are_orthogonal(kind, sizes, expected):
    model = make_model(ModelConfig(kind=kind, options=sizes), 50)
    groups = make_optimizer(model, MUON).param_groups
    chosen = [each for group in groups if "momentum" in group for each in group["params"]]
    assert len(chosen) == expected
    assert all(each.dim() == 2 and 50 not in each.shape for each in chosen)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_a_run_that_is_cut_off_ends_with_the_same_bits(tmp_path):
    class Cut(Exception):
        pass

    def stop(progress):
        if progress.step == 5:
            raise Cut

    corpus, config = make_corpus(tmp_path / "corpus"), tiny(optimizer=MUON)
    pretrain(config, corpus, tmp_path / "whole", peak=1.0)
    with pytest.raises(Cut):
        pretrain(config, corpus, tmp_path / "cut", peak=1.0, watch=stop)
    pretrain(config, corpus, tmp_path / "cut", peak=1.0)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = [
        [without_time(json.loads(line)) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "cut")
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("changes", [{"name": "sgd"}, {"momentum": 1.0}, {"matrix_rate": 0.0}])
def test_bad_values_are_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        OptimizerConfig(learning_rate=1e-3, **changes)
