import pytest
import torch

from latchwork.training import SCALES, TRAINERS


def test_the_papers_trainers():
    assert TRAINERS["minmax"].batch_sizes == (64,)
    assert TRAINERS["xlstm"].batch_sizes == (64, 128)
    assert all(TRAINERS[f"{name}_bs8"].batch_sizes == (8,) for name in ("minmax", "xlstm", "mamba"))
    weights = [torch.nn.Parameter(torch.zeros(2))]
    for name, kind, betas, eps, decay in [
        ("minmax", torch.optim.Adam, (0.9, 0.999), 1e-8, 1e-4),
        ("xlstm", torch.optim.AdamW, (0.9, 0.99), 1e-5, 0.1),
        ("mamba", torch.optim.Adam, (0.9, 0.999), 1e-8, 0.0),
    ]:
        optimizer = TRAINERS[name].make_optimizer(weights)
        group = optimizer.param_groups[0]
        assert type(optimizer) is kind
        assert (group["betas"], group["eps"], group["weight_decay"], group["lr"]) == (betas, eps, decay, 1e-3)
    assert [TRAINERS[name].clip for name in ("minmax", "xlstm", "mamba")] == [None, 1.0, 1.0]


def test_the_step_schedule_is_torchs_step_lr():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    for epoch in range(30):
        for batch in (0, 6):
            assert TRAINERS["minmax"].rate(epoch * 7 + batch, 7, 30) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_the_cosine_schedule_warms_up_over_a_tenth_and_falls_to_nothing():
    rates = [TRAINERS["xlstm"].rate(step, 10, 30) for step in range(300)]
    assert rates.index(max(rates)) in (29, 30)
    assert max(rates) == pytest.approx(1e-3)
    assert rates[0] == pytest.approx(1e-3 / 30)
    assert rates[:30] == sorted(rates[:30])
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert 0 <= rates[-1] < 1e-6
    assert TRAINERS["xlstm"].rate(0, 1, 1) > 0


def test_the_constant_schedule_is_constant():
    assert {TRAINERS["mamba"].rate(step, 10, 30) for step in range(300)} == {1e-3}


def test_a_scale_changes_the_budget_alone():
    paper = SCALES["paper"]
    assert (paper.training.epochs, paper.training.patience, paper.training.window) == (30, 5, 3)
    assert (paper.training.min_seeds, paper.training.max_seeds, paper.training.hours) == (3, 10, 4.0)
    assert (paper.evaluation.resamples, paper.evaluation.confidence, paper.evaluation.hours) == (10_000, 0.99, 20.0)
    for scale in SCALES.values():
        for name in ("window", "min_delta", "patience", "confidence", "margin"):
            assert getattr(scale.training, name) == getattr(paper.training, name)
    assert SCALES["laptop"].training.sequences is None
    assert SCALES["laptop"].evaluation.length is None
    assert SCALES["laptop"].evaluation.sequences * SCALES["laptop"].evaluation.min_seeds >= 16
