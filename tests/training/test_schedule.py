from itertools import pairwise

import pytest
import torch
from pretraining_cases import TINY, tiny

from latchwork.baselines.registry import ModelConfig, make_model
from latchwork.training.config import OptimizerConfig, ScheduleConfig
from latchwork.training.optimizer import learning_rate, make_optimizer, set_step
from latchwork.training.presets import find_config


def test_the_papers_rate_rises_over_2000_steps_and_falls_to_a_hundredth_at_200000():
    paper = find_config("paper-112m")
    assert learning_rate(paper, 0) == pytest.approx(6e-4 / 2000)
    assert learning_rate(paper, 1999) == pytest.approx(6e-4)
    assert learning_rate(paper, 101_000) == pytest.approx((6e-4 + 6e-6) / 2)
    assert learning_rate(paper, 200_000) == learning_rate(paper, 300_000) == pytest.approx(6e-6)


@pytest.mark.parametrize("shape", ["linear", "cosine", "constant"])
def test_a_rate_rises_to_its_peak_and_never_again(shape):
    config = tiny(steps=100, schedule=ScheduleConfig(shape=shape, warmup=0.1, final=0.2))
    rates = [learning_rate(config, step) for step in range(120)]
    assert rates[:10] == pytest.approx([1e-2 * (step + 1) / 10 for step in range(10)])
    assert max(rates) == pytest.approx(1e-2)
    assert all(a >= b for a, b in pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(1e-2 if shape == "constant" else 2e-3)
    middle = {"linear": 0.6e-2, "cosine": 0.6e-2, "constant": 1e-2}[shape]
    assert learning_rate(config, 55) == pytest.approx(middle)


def test_a_rate_without_warm_up_begins_at_its_peak_and_may_be_lowered_by_hand():
    config = tiny(steps=1, schedule=ScheduleConfig(warmup=0.0, final=1.0, scale=((0, 1.0), (5, 0.25))))
    assert [learning_rate(config, step) for step in (0, 4, 5)] == [1e-2, 1e-2, 2.5e-3]


@pytest.mark.parametrize(("decay", "vectors_decay"), [("matrices", False), ("all", True)])
def test_matrices_decay_and_the_decay_ends_at_its_step(decay, vectors_decay):
    model = make_model(TINY.model, 8)
    config = tiny(optimizer=OptimizerConfig(learning_rate=1e-2, weight_decay=((0, 0.1), (4, 0.0)), decay=decay))
    optimizer = make_optimizer(model, config.optimizer)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))

    def moved(step):
        """What a step without a gradient moves: those that decay."""
        before = [each.detach().clone() for each in model.parameters()]
        for each in model.parameters():
            each.grad = torch.zeros_like(each)
        set_step(optimizer, config, step)
        optimizer.step()
        pairs = zip(before, model.parameters(), strict=True)
        return {each.dim() > 1 for old, each in pairs if not torch.equal(old, each)}

    with torch.no_grad():
        for each in model.parameters():
            each.fill_(1.0)
    assert moved(3) == ({True, False} if vectors_decay else {True})
    assert moved(4) == set()


def test_mambas_rates_do_not_decay():
    model = make_model(ModelConfig(kind="mamba", options={"n_layers": 1, "width": 8}), 5)
    optimizer = make_optimizer(model, TINY.optimizer)
    decayed = {id(each) for group in optimizer.param_groups if group["decays"] for each in group["params"]}
    names = {name.rpartition(".")[2] for name, each in model.named_parameters() if id(each) not in decayed}
    assert names == {"A_log", "D", "bias", "weight"}  # the weights being the norms'
