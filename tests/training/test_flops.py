import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from latchwork.baselines.registry import ModelConfig, make_model
from latchwork.evaluation.estimate import estimate
from latchwork.ops.dispatch import use_backend
from latchwork.training.flops import flops_per_token, measure_peak
from latchwork.training.presets import PAPER

MODELS = {
    "minmax": ModelConfig(options={"d_model": 16, "d_state": 24, "n_layers": 2, "conv_type": "gated"}),
    "untied": ModelConfig(options={"d_model": 16, "d_state": 24, "n_layers": 2, "tie_weights": False}),
    "transformer": ModelConfig(kind="transformer", options={"n_layers": 2, "width": 16, "heads": 2}),
    "transformer with learned positions": ModelConfig(
        kind="transformer", options={"n_layers": 2, "width": 16, "heads": 2, "positions": 500}
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_formula_is_three_times_what_torch_counts_in_a_forward_pass(name):
    config, (B, T) = MODELS[name], (2, 7)
    model = make_model(config, 11).eval()
    with (
        use_backend("torch"),
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
    ):  # it knows no kernels of ours
        model(torch.randint(11, (B, T)))
    counted = 3 * counter.get_total_flops() / (B * T)
    # Where torch counts attention at all it counts every pair of tokens, and the formula only those that are seen.
    attention = 12 * 2 * 16 * T / 2 if config.kind == "transformer" else 0
    assert counted - 2 * attention <= flops_per_token(model, config, T) - attention <= counted


def test_the_papers_model_takes_six_operations_for_each_of_its_weights():
    with torch.device("meta"):
        model = make_model(PAPER.model, 50_257)
    assert flops_per_token(model, PAPER.model, 1024) == pytest.approx(6 * 112.4e6, rel=2e-3)


def test_a_peak_is_measured():
    assert measure_peak(torch.device("cpu"), [torch.float32], seconds=0.0) > 1e8


def test_the_interval_of_batch_losses_is_students():
    values = [3.0, 3.2, 3.1, 3.3]
    found = estimate(values)
    assert found.mean == pytest.approx(3.15)
    spread = (sum((each - 3.15) ** 2 for each in values) / 3) ** 0.5
    assert found.margin == pytest.approx(3.182446 * spread / 2)  # t of 3 degrees of freedom at 97.5%
    with pytest.raises(ValueError, match="at least 2"):
        estimate([1.0])
