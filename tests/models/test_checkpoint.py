"""A model on disk: the same bits when read again, clear errors for what is not one, and never half a file."""

import json

import pytest
import torch
from model_cases import EXACT_VARIANTS, VARIANTS, assert_same_run, make_exact_model, make_model, make_tokens
from safetensors.torch import load_file, save_file

from latchwork import MinMaxRNC_LM

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def files(folder):
    return sorted(each.name for each in folder.iterdir())


def save(folder, **options):
    model = make_model(dtype=torch.float32, **options)
    model.save(folder)
    return model


def edit(folder, change):
    """Change the values in config.json."""
    values = json.loads((folder / CONFIG).read_text())
    change(values)
    (folder / CONFIG).write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [("default", torch.float64), ("degree 2", torch.bfloat16), *((name, torch.float32) for name in VARIANTS)],
    ids=str,
)
def test_a_saved_model_is_the_same_model(variant, dtype, tmp_path):
    model = make_model(**VARIANTS[variant], dtype=dtype, head_dropout=0.2, ffn_dropout=0.3)
    model.save(tmp_path / "new" / "folder")
    loaded = MinMaxRNC_LM.load(str(tmp_path / "new" / "folder"))
    assert files(tmp_path / "new" / "folder") == [CONFIG, WEIGHTS]
    assert (loaded.config, loaded.vocab_size, loaded.training) == (model.config, model.vocab_size, False)
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].dtype == theirs[name].dtype == dtype
        assert torch.equal(ours[name], theirs[name])
    tokens = make_tokens(2, 40)
    assert_same_run(loaded(tokens), model(tokens))
    trained = {name: value.requires_grad for name, value in model.named_parameters()}
    assert {name: value.requires_grad for name, value in loaded.named_parameters()} == trained


@pytest.mark.parametrize("variant", EXACT_VARIANTS)
def test_a_model_may_stop_be_saved_and_go_on_bit_for_bit(variant, tmp_path):
    model, tokens = make_exact_model(**EXACT_VARIANTS[variant]), make_tokens(2, 20)
    logits, state = model(tokens[:, :11])
    model.save(tmp_path)
    state.save(tmp_path / "state")
    again, after = MinMaxRNC_LM.load(tmp_path)(tokens[:, 11:], type(state).load(tmp_path / "state"))
    assert_same_run((torch.cat((logits, again), 1), after), model(tokens))


@pytest.mark.parametrize("tie_weights", [False, True])
def test_a_shared_weight_is_saved_once(tie_weights, tmp_path):
    model = save(tmp_path, tie_weights=tie_weights)
    tensors = load_file(tmp_path / WEIGHTS)
    assert ("head.weight" in tensors) != tie_weights
    numbers = sum(each.numel() for each in tensors.values())
    assert numbers == model.parameter_count() + 2 * 6  # x0 of two layers, not learned
    loaded = MinMaxRNC_LM.load(tmp_path)
    assert (loaded.head.weight is loaded.embedding.weight) == tie_weights


def test_the_configuration_is_readable_json(tmp_path):
    model = save(tmp_path)
    values = json.loads((tmp_path / CONFIG).read_text())
    assert values == {"format": "latchwork", "vocab_size": 7, "model": model.config.to_dict()}


def test_saving_replaces_what_was_there(tmp_path):
    save(tmp_path)
    model, tokens = save(tmp_path, n_layers=3, conv_type="gated"), make_tokens(1, 5)
    assert_same_run(MinMaxRNC_LM.load(tmp_path)(tokens), model(tokens))
    assert files(tmp_path) == [CONFIG, WEIGHTS]


@pytest.mark.parametrize("place", ["safetensors", "rename"])
def test_a_failing_save_leaves_the_old_files_and_no_others(place, tmp_path, monkeypatch):
    model, tokens = save(tmp_path), make_tokens(1, 5)

    def fail(*args, **kwargs):
        if place == "safetensors":
            with open(args[1], "wb") as file:
                file.write(b"half")
        raise OSError("disk full")

    name = "latchwork.tensor_files.save_file" if place == "safetensors" else "pathlib.Path.replace"
    with monkeypatch.context() as patch:
        patch.setattr(name, fail)
        with pytest.raises(OSError, match="disk full"):
            make_model(n_layers=3).save(tmp_path)
    assert files(tmp_path) == [CONFIG, WEIGHTS]
    assert_same_run(MinMaxRNC_LM.load(tmp_path)(tokens), model(tokens))


@pytest.mark.parametrize("content", ["[]", "3", "null", "{}", '{"format": "gpt2"}', '{"model_type": "llama"}'])
def test_a_foreign_configuration_is_an_error_that_names_the_file(content, tmp_path):
    save(tmp_path)
    (tmp_path / CONFIG).write_text(content)
    with pytest.raises(
        ValueError, match=r"config.json (is not the configuration of a latchwork model|must hold a JSON)"
    ):
        MinMaxRNC_LM.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.update(extra=1), "has unknown keys: extra"),
        (lambda values: values.pop("vocab_size"), "lacks the key 'vocab_size'"),
        (lambda values: values.pop("model"), "lacks the key 'model'"),
        (lambda values: values["model"]["backbone"].update(norm="batch"), "norm must be one of"),
        (lambda values: values["model"]["backbone"].pop("d_model"), "'d_model'"),
        (lambda values: values.update(model=[1]), "model must be"),
        (lambda values: values.update(vocab_size="7"), "vocab_size must be"),
    ],
)
def test_a_wrong_value_in_the_configuration_is_named_with_the_file(change, message, tmp_path):
    save(tmp_path)
    edit(tmp_path, change)
    with pytest.raises(ValueError, match=rf"config\.json.*{message}"):
        MinMaxRNC_LM.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 3}, r"it lacks backbone.layers.2.conv.bias, .* and \d+ more"),
        ({"n_layers": 1}, r"it has backbone.layers.1.conv.bias, .* more, which the model does not"),
        ({"d_state": 9}, r"backbone.layers.0.neuron.output.weight must be .*9.*; got "),
        ({"conv_type": "gated"}, r"it lacks backbone.layers.0.conv.g, backbone.layers.1.conv.g"),
        ({"vocab_size": 8}, r"embedding.weight must be \(8, 6\); got \(7, 6\)"),
    ],
    ids=str,
)
def test_weights_that_do_not_fit_the_configuration_are_an_error_that_says_where(change, message, tmp_path):
    save(tmp_path)
    edit(tmp_path, lambda values: (values if "vocab_size" in change else values["model"]["backbone"]).update(change))
    with pytest.raises(ValueError, match=rf"model.safetensors does not fit its config.json: {message}"):
        MinMaxRNC_LM.load(tmp_path)


def test_one_tensor_too_many_is_an_error_that_names_it(tmp_path):
    save(tmp_path)
    save_file({**load_file(tmp_path / WEIGHTS), "lora.weight": torch.zeros(1)}, tmp_path / WEIGHTS)
    with pytest.raises(ValueError, match=r"it has lora.weight, which the model does not"):
        MinMaxRNC_LM.load(tmp_path)


def test_weights_that_are_no_floating_point_numbers_are_an_error_that_names_them(tmp_path):
    save(tmp_path)
    save_file({name: value.to(torch.int8) for name, value in load_file(tmp_path / WEIGHTS).items()}, tmp_path / WEIGHTS)
    with pytest.raises(ValueError, match=r"model.safetensors.*int8"):
        MinMaxRNC_LM.load(tmp_path)


def test_a_model_of_scattered_weights_is_saved(tmp_path):
    model, tokens = make_model(), make_tokens(1, 5)
    up = model.backbone.layers[0].ffn.up
    up.weight = torch.nn.Parameter(up.weight.detach().T.contiguous().T)
    model.save(tmp_path)
    assert_same_run(MinMaxRNC_LM.load(tmp_path)(tokens), model(tokens), 1e-12)


def test_loading_reads_no_pickle(tmp_path, monkeypatch):
    save(tmp_path)
    monkeypatch.setattr("pickle.load", None)
    monkeypatch.setattr("pickle.Unpickler", None)
    MinMaxRNC_LM.load(tmp_path)
