import pytest
import torch

from latchwork import load_model
from latchwork.baselines.registry import ModelConfig, load_tensors, make_model, own_tensors, save_model
from latchwork.training.network import ModelWithLoss

MODELS = {
    "minmax": ModelConfig(options={"d_model": 8, "d_state": 6, "n_layers": 2}),
    "untied": ModelConfig(options={"d_model": 8, "d_state": 6, "n_layers": 1, "tie_weights": False}),
    "transformer": ModelConfig(kind="transformer", options={"n_layers": 1, "width": 8, "heads": 2}),
    "lstm": ModelConfig(kind="lstm", options={"n_layers": 1, "width": 5}),
    "gru": ModelConfig(kind="gru", options={"n_layers": 2, "width": 5}),
    "mamba": ModelConfig(kind="mamba", options={"n_layers": 1, "width": 8}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_comes_back_bit_for_bit(name, tmp_path):
    model = make_model(MODELS[name], 7).eval()
    save_model(tmp_path / "model", model)
    again = load_model(tmp_path / "model")
    tokens = torch.randint(7, (2, 9))
    with torch.no_grad():
        assert torch.equal(model(tokens)[0], again(tokens)[0])
    assert not again.training
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize("name", MODELS)
def test_the_network_gives_the_mean_cross_entropy_of_the_models_logits(name):
    model = make_model(MODELS[name], 7).eval()
    tokens, targets = torch.randint(7, (2, 3, 9))
    loss, state = ModelWithLoss(model)(tokens, targets)
    expected = torch.nn.functional.cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten())
    torch.testing.assert_close(loss, expected)
    assert state is None or not state.x.requires_grad


def test_shared_weights_are_kept_once_and_stay_shared():
    model, other = (make_model(MODELS["minmax"], 7) for _ in range(2))
    assert "head.weight" not in own_tensors(model)
    load_tensors(other, own_tensors(model))
    assert torch.equal(other.head.weight, model.embedding.weight)
    assert other.head.weight is other.embedding.weight


def test_what_does_not_fit_is_named(tmp_path):
    model = make_model(MODELS["gru"], 7)
    with pytest.raises(ValueError, match="of another model: they differ in"):
        load_tensors(model, own_tensors(make_model(MODELS["lstm"], 7)) | {"more": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"embedding.weight must be \(7, 5\); got \(8, 5\)"):
        load_tensors(model, own_tensors(make_model(MODELS["gru"], 8)))
    with pytest.raises(ValueError, match="must hold a model"):
        load_model(tmp_path)
