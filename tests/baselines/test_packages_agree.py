"""Ours gives what the packages' own forward gives, logits and gradients: they are the definition."""

import pytest
import torch
from baseline_cases import VOCABULARY, draw, tokens

# Raised by torch itself, where mlstm_kernels compiles what is for GPUs only.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


def own_logits(kind, model, given):
    """Of the package, which for xlstm-large wants a multiple of 64 steps when told to train."""
    out = model.network(given)
    return out.logits if kind == "mamba" else out[0] if kind == "xlstm-large" else out


@pytest.mark.parametrize("kind", ["mamba", "slstm", "mlstm", "xlstm-large"])
def test_ours_equals_the_package(kind):
    # In float32: what transformers and xlstm-large compute in float64 they round to it on the way.
    model, given = draw(kind).eval().float(), tokens(2, 67)
    weight = torch.randn(2, 67, VOCABULARY)
    ours, theirs = model(given)[0], own_logits(kind, model, given)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-5)
    parameters = list(model.parameters())
    here = torch.autograd.grad((ours * weight).sum(), parameters)
    there = torch.autograd.grad((theirs * weight).sum(), parameters)
    for one, other in zip(here, there, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()))


def test_xlstm_large_in_the_mode_for_training_is_the_same():
    model, given = draw("xlstm-large"), tokens(2, 128)
    ours = model(given)[0]
    for block in model.network.backbone.blocks:
        block.mlstm_layer.mlstm_backend.config.mode = "train"
    torch.testing.assert_close(ours, model.network(given)[0], rtol=0, atol=2e-5)


def test_the_weights_of_mamba_start_as_in_mamba_ssm():
    from latchwork.baselines import make_baseline

    network = make_baseline("mamba-s", 20).network
    mixer = network.backbone.layers[1].mixer
    assert network.lm_head.weight is network.backbone.embeddings.weight
    assert float(network.lm_head.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    for weight, bound in [
        (mixer.in_proj.weight, 95**-0.5),
        (mixer.x_proj.weight, 190**-0.5),
        (mixer.conv1d.weight, 0.5),
        (mixer.conv1d.bias, 0.5),
        (mixer.dt_proj.weight, 6**-0.5),
        (mixer.out_proj.weight, 190**-0.5 / 2**0.5),
    ]:
        assert 0.9 * bound < weight.abs().max() <= bound
    step = torch.nn.functional.softplus(mixer.dt_proj.bias)
    assert 0.99e-3 < step.min() < step.max() < 0.101
    assert torch.allclose(mixer.A_log.exp(), torch.arange(1.0, 17).expand(190, 16))
